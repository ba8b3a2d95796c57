"""Public questions to a model, where the engine meets the analyses: its weights, maps of a picture, the
experiment.
"""
