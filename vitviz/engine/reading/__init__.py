"""What a checkpoint's files say: one file a format in which trained Vision Transformers come, all ending in
timm's names.
"""
