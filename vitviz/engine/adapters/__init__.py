"""Build runnable models: from a checkpoint's tensors, or as a copy of a model in memory."""
