"""Public functions that combine engine and analyses: attribution, saliency, circuits, perturbation, text."""
