"""Maps on trial: whether taking away what one calls relevant moves the answer more than the rest."""
