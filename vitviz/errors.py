"""What can go wrong for a user: each error says what was given, what was expected and what to do."""

import math
import operator
import re

# An absolute path of at least two parts; not what follows the host in an address.
_PATH = re.compile(r"(?<![\w/:.\\])(?:[A-Za-z]:)?[\\/](?:[^\\/\s'\",;()]+[\\/])+([^\\/\s'\",;()]*)")


class VitvizError(ValueError):
    """The base of every error whose text is written for the person at the page; anything else is a bug."""


class ImageError(VitvizError):
    """The upload is no picture, or one that cannot be analysed."""


class CheckpointError(VitvizError):
    """A checkpoint is unknown, or its weights do not fit or are not safe to read."""


class UnsupportedModel(VitvizError):
    """The model is no plain Vision Transformer, or its attention could not be captured truthfully."""


class HubError(VitvizError):
    """The model hub cannot be reached, refused, or broke off."""


class OutOfMemory(VitvizError):
    """The device or the machine has too little memory for what was asked."""


class WrongSetting(VitvizError):
    """A setting that does not exist, or a value outside its bounds."""


class Unknown(VitvizError, KeyError):
    """A key, view or item that the server does not have, or no longer has."""

    __str__ = VitvizError.__str__


def first_line(error: BaseException) -> str:
    """The first line of a library's error, for a sentence that strangers read: of paths the last part alone.

    >>> first_line(ValueError("invalid header in '/home/somebody/weights/mine.pth'."))
    "invalid header in 'mine.pth'"
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    first, *_ = (str(error).strip() or type(error).__name__).splitlines()
    return _PATH.sub(r"\1", first).rstrip(".")[:160]


def whole_number(given: object, least: int = 0, below: float = math.inf) -> int | None:
    """A whole number within these bounds, NumPy's too; None for anything else, and for True and False."""
    try:
        number = operator.index(given)
    except TypeError:
        return None
    return number if least <= number < below and not isinstance(given, bool) else None


def quoted(given: object, most: int = 200) -> str:
    """Return the repr of a given value for a refusal, cut to at most `most` characters.

    >>> quoted("mean"), quoted("x" * 1000, 8)
    ("'mean'", "'xxxxxx…")
    """
    text = repr(given[:most] if isinstance(given, str | bytes | list | tuple) else given)
    return text if len(text) <= most else f"{text[: most - 1]}…"


class Stopped(VitvizError):
    """Nobody waited any longer for what was being computed, or it took longer than it may."""


class TooMuch(VitvizError):
    """More than this server computes for one visitor, or more than it can take on just now."""


class AssumedWarning(UserWarning):
    """A file does not say something that its pictures rest on, and it was assumed."""
