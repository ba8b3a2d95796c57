"""Readers of checkpoint formats, one module per format. All convert to timm's tensor names."""
