"""From YAML text to a checked `Spec`, or every diagnostic at once: `reader` is the way in.

text ─source─▶ Source ─document─▶ Document ─reader─▶ Spec
"""
