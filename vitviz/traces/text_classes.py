"""Sentences that a checkpoint's name carries as its classes: `my-clip?text=a cat|a dog&template=a {}.`

So whatever names a checkpoint names what it is asked about: a link, a lesson, a file, a trace, a cache. Of
classes by a file of vectors it has the first letters of their digest: `my-dino?vectors=0123456789abcdef`.
"""

from collections.abc import Sequence
from urllib.parse import quote, unquote

from vitviz.errors import VitvizError
from vitviz.traces.unicode import require_unicode

SENTENCES, WRITTEN = 100, 2_000  # in a name, and their characters; `vitviz.text` takes more


def with_text(name: str, sentences: Sequence[str], templates: Sequence[str] = ()) -> str:
    """A checkpoint's name that carries sentences as its classes, in the place of those that it carried.

    VitvizError for more than a name carries.

    >>> with_text("my-clip", ["a cat", "50 % | a dog"], ["a photo of {}."])
    'my-clip?text=a cat|50 %25 %7C a dog&template=a photo of {}.'
    """
    count, long = len(sentences), sum(map(len, (*sentences, *templates)))
    if count > SENTENCES or long > WRITTEN:
        raise VitvizError(
            f"Given {count} sentences of {long} characters; expected up to {SENTENCES} of {WRITTEN} in all."
            " Python's vitviz.text takes more."
        )
    for one in (*sentences, *templates):
        require_unicode(one, "the sentence")
    carried = "&".join(
        f"{key}={'|'.join(''.join(map(_carried, one)) for one in given)}"
        for key, given in (("text", sentences), ("template", templates)) if given
    )  # fmt: skip
    own = plain(name)
    return f"{own}{'&' if '?' in own else '?'}{carried}" if carried else own


def without_text(name: str) -> tuple[str, list[str], list[str]]:
    """A checkpoint's name without the sentences that it carries, these, and their templates.

    >>> without_text("vit.pth?heads=6&text=a cat|50 %25 %7C a dog")
    ('vit.pth?heads=6', ['a cat', '50 % | a dog'], [])
    """
    own, _, query = name.partition("?")
    pairs = [one.partition("=") for one in query.split("&")]
    rest = "&".join("".join(one) for one in pairs if one[0] not in ("text", "template", "vectors"))
    found = {key: [unquote(one) for one in value.split("|")] for key, _, value in pairs}
    return f"{own}?{rest}" if rest else own, found.get("text", []), found.get("template", [])


def plain(name: str) -> str:
    """A checkpoint's name without the sentences or vectors that it carries."""
    return without_text(name)[0]


def with_vectors(name: str, digest: str) -> str:
    """A checkpoint's name that carries classes by their digest, in the place of all that it carried.

    >>> with_vectors("vit.pth?heads=6&text=a cat", "0123456789abcdef0123")
    'vit.pth?heads=6&vectors=0123456789abcdef'
    """
    own = plain(name)
    return f"{own}{'&' if '?' in own else '?'}vectors={digest[:16]}"


def vectors_of(name: str) -> str:
    """The letters of the digest that a checkpoint's name carries; '' for none."""
    return next((one[8:] for one in name.partition("?")[2].split("&") if one.startswith("vectors=")), "")


def _carried(letter: str) -> str:
    """A letter as it stands in a name, where some have a meaning and those that cannot be seen are lost."""
    return quote(letter, "", errors="replace") if letter in "%&|@" or not letter.isprintable() else letter
