"""The languages of the page."""


def say(text: str) -> str:
    """The text in the visitor's language."""
    return text
