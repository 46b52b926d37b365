"""A package as v4gen would emit it, in plain torch: right, slow, and the object of the mutation tests.

The tests copy it and write `constants.py` for a spec.
"""
