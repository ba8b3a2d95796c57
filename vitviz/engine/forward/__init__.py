"""Forward passes: recorded, checked for their truth, changed on the way, in a precision, on a copy."""
