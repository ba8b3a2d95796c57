"""Which checkpoints there are, on this machine, in timm and on the hub, and where their files lie."""
