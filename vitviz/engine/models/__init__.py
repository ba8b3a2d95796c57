"""From a name to a model with its weights: which checkpoints there are, where their files lie, and how they
are read.
"""
