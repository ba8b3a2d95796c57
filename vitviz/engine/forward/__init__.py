"""Forward passes: recording, truth check, interventions, gradients, precision and model copies."""
