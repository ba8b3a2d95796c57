"""How the files are read in which trained Vision Transformers come: one file a format, all ending in timm's
names.
"""
