"""What a model needs to run: the one that a file's tensors fit, filled, or a copy of one in memory."""
