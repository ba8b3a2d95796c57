"""The stand-in for `spaces` is imported by programs that play a Space, never by the tests themselves."""

collect_ignore = ["simulated"]
