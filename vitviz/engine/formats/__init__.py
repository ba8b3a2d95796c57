"""What a checkpoint's files say: one file a format of trained Vision Transformers, all in timm's names."""
