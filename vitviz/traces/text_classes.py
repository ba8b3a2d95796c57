"""Checkpoint names that carry sentences as classes.

Example: `my-clip?text=a cat|a dog&template=a {}.` A checkpoint's name in a link, lesson, file, trace or cache
thus includes its classes. For classes from a file of vectors the name carries the first characters of their
digest: `my-dino?vectors=0123456789abcdef`.
"""

from collections.abc import Sequence
from urllib.parse import quote, unquote

from vitviz.errors import VitvizError
from vitviz.traces.unicode import require_unicode

SENTENCES, WRITTEN = 100, 2_000  # maximum in a name, and their characters in all; `vitviz.text` accepts more


def with_text(name: str, sentences: Sequence[str], templates: Sequence[str] = ()) -> str:
    """Return a checkpoint's name with these sentences as its classes, replacing any others.

    Raises VitvizError for more sentences or characters than a name can carry.

    >>> with_text("my-clip", ["a cat", "50 % | a dog"], ["a photo of {}."])
    'my-clip?text=a cat|50 %25 %7C a dog&template=a photo of {}.'
    """
    count, long = len(sentences), sum(map(len, (*sentences, *templates)))
    if count > SENTENCES or long > WRITTEN:
        expected = f"expected up to {SENTENCES} of {WRITTEN} in all. Python's vitviz.text takes more."
        raise VitvizError(f"{count} sentences of {long} characters are too many; {expected}")
    for one in (*sentences, *templates):
        require_unicode(one, "the sentence")
    carried = "&".join(
        f"{key}={'|'.join(''.join(map(_carried, one)) for one in given)}"
        for key, given in (("text", sentences), ("template", templates)) if given
    )  # fmt: skip
    own = plain_name(name)
    return f"{own}{'&' if '?' in own else '?'}{carried}" if carried else own


def without_text(name: str) -> tuple[str, list[str], list[str]]:
    """Return a checkpoint's name without its sentences, the sentences, and their templates.

    >>> without_text("vit.pth?heads=6&text=a cat|50 %25 %7C a dog")
    ('vit.pth?heads=6', ['a cat', '50 % | a dog'], [])
    """
    own, _, query = name.partition("?")
    pairs = [one.partition("=") for one in query.split("&")]
    rest = "&".join("".join(one) for one in pairs if one[0] not in ("text", "template", "vectors"))
    result = {key: [unquote(one) for one in value.split("|")] for key, _, value in pairs}
    return f"{own}?{rest}" if rest else own, result.get("text", []), result.get("template", [])


def plain_name(name: str) -> str:
    """Return a checkpoint's name without its sentences or vectors."""
    return without_text(name)[0]


def with_vectors(name: str, digest: str) -> str:
    """Return a checkpoint's name with classes given by their digest, replacing any others.

    >>> with_vectors("vit.pth?heads=6&text=a cat", "0123456789abcdef0123")
    'vit.pth?heads=6&vectors=0123456789abcdef'
    """
    own = plain_name(name)
    return f"{own}{'&' if '?' in own else '?'}vectors={digest[:16]}"


def vectors_of(name: str) -> str:
    """Return the characters of the classes' digest in a checkpoint's name; '' if the name has no digest."""
    return next((one[8:] for one in name.partition("?")[2].split("&") if one.startswith("vectors=")), "")


def _carried(letter: str) -> str:
    """Return a character as written in a name: reserved and unprintable ones are percent-encoded."""
    return quote(letter, "", errors="replace") if letter in "%&|@" or not letter.isprintable() else letter
