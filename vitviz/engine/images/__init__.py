"""Pictures: opened, checked, and made into what a model reads."""
