"""Maps on trial: whether taking away what a map calls relevant moves the answer more than taking away the
rest.
"""
