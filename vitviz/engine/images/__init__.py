"""Open, check, edit and preprocess images and video frames."""
