"""What a model needs to run here: the one that a file's tensors fit, filled with them, or a copy of one in
memory.
"""
