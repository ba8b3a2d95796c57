"""Find checkpoints on this machine, in timm and on the hub, and locate or download their files."""
