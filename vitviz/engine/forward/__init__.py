"""Forward passes: recording, truth check, edits, gradients, precision and model copies."""
