"""What one forward pass leaves, frozen, and what it was asked with; and the small things that every room
shares: how something is said, shown, made a table, followed and stopped.
"""
