"""Errors for users: each message says what was given, what was expected and what to do."""

import math
import operator
import re
from pathlib import Path

# An absolute path of at least two parts. The path of a URL, after its host, does not match.
_PATH = re.compile(r"(?<![\w/:.\\])(?:[A-Za-z]:)?[\\/](?:[^\\/\s'\",;()]+[\\/])+([^\\/\s'\",;()]*)")


class VitvizError(ValueError):
    """Base of every error whose message is written for the user; any other exception is a bug."""


class ImageError(VitvizError):
    """The upload is not an image, or not an image that can be analysed."""


class CheckpointError(VitvizError):
    """A checkpoint is unknown, or its weights do not fit or are not safe to read."""


class UnsupportedModel(VitvizError):
    """The model is not a plain Vision Transformer, or its attention could not be captured correctly."""


class HubError(VitvizError):
    """The model hub cannot be reached, refused the request, or broke off."""


class OutOfMemory(VitvizError):
    """The device or the machine has too little memory for the request."""


class WrongSetting(VitvizError):
    """A setting does not exist, or its value is out of bounds."""


class Unknown(VitvizError, KeyError):
    """The server does not have this key, view or item, or no longer has it."""

    __str__ = VitvizError.__str__


def first_line(error: BaseException) -> str:
    """Return an error's first line for a public message; paths are cut to their last part.

    >>> first_line(ValueError("invalid header in '/home/somebody/weights/mine.pth'."))
    "invalid header in 'mine.pth'"
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    first, *_ = (str(error).strip() or type(error).__name__).splitlines()
    return _PATH.sub(r"\1", first).rstrip(".")[:160]


def write_error(path: Path, error: Exception) -> VitvizError:
    """Return the error for a file that cannot be written."""
    return VitvizError(
        f"{path.name[:200]} cannot be written: {first_line(error)}. Name a file in a folder that exists and"
        " may be written to."
    )


def whole_number(given: object, least: int = 0, below: float = math.inf) -> int | None:
    """Return `given` as an int if least <= given < below, else None.

    NumPy integers count. True and False do not.
    """
    try:
        number = operator.index(given)
    except TypeError:
        return None
    return number if least <= number < below and not isinstance(given, bool) else None


def require_whole(name: str, given: object, least: int = 1) -> None:
    """Raise VitvizError, with the name of the argument, unless `given` is a whole number from `least`.

    >>> require_whole("draws", 0)
    Traceback (most recent call last):
    vitviz.errors.VitvizError: draws=0 is not valid; expected a whole number from 1.
    """
    if whole_number(given, least) is None:
        raise VitvizError(f"{name}={quoted(given)} is not valid; expected a whole number from {least}.")


def quoted(given: object, most: int = 200) -> str:
    """Return the repr of a value for an error message, cut to at most `most` characters.

    >>> quoted("mean"), quoted("x" * 1000, 8)
    ("'mean'", "'xxxxxx…")
    """
    text = repr(given[:most] if isinstance(given, str | bytes | list | tuple) else given)
    return text if len(text) <= most else f"{text[: most - 1]}…"


class Stopped(VitvizError):
    """The computation was cancelled: nobody waits for its result, or it exceeded its time limit."""


class TooMuch(VitvizError):
    """The request exceeds what this server computes for one visitor, or what it can accept now."""


class AssumedWarning(UserWarning):
    """A file lacks a fact that its results depend on, and a value was assumed."""
