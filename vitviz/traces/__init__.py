"""What one forward pass leaves, frozen, with what it was asked; and the small things that rooms share."""
