"""Evidence that an emitted package is right: compile it, hold it against the oracle, write down what was seen.

The only stage that loads torch and tilelang, and only inside the functions that need them.
"""
