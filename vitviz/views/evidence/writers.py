"""One page deeper in Evidence: who wrote what a head reads, and the trail of heads back from the answer."""

import numpy as np

from vitviz.errors import WrongSetting
from vitviz.views import late
from vitviz.views.evidence import made
from vitviz.views.shared import packed, writers_of
from vitviz.views.subject import Settings, Subject

FITS = r"|\d{1,3}\.\d{1,3}(-\d{1,3}\.\d{1,3}){0,11}"  # heads from the answer back, counted from 1
WRITER = r"|embedding|positions|constant|(bias|mlp)\.\d{1,3}|head\.\d{1,3}\.\d{1,3}"


def trail(subject: Subject, settings: Settings) -> list[tuple[int, int]]:
    """The heads that are followed, from the answer back, from 0: as set, as chosen, or that of most share."""
    text = settings["trail"] or (settings["chosen"] if "." in settings["chosen"] else "")
    if not text:
        heads = made.account(subject, settings).heads
        return [divmod(int(heads.abs().argmax()), heads.shape[1])]
    found = [tuple(int(part) - 1 for part in one.split(".")) for one in text.split("-")]
    about = subject.about
    backwards = all(one > two for (one, _), (two, _) in zip(found, found[1:], strict=False))
    if not backwards or any(not (0 <= a < about.layers and 0 <= b < about.heads) for a, b in found):
        raise WrongSetting(
            f"Given trail={text}; expected heads of layer 1 to {about.layers}, head 1 to {about.heads}, each"
            " in an earlier layer than the one before it, such as 8.2-5.1."
        )
    return found


def writers(subject: Subject, settings: Settings, steps: int | None = None):
    """The writers of the last head of the trail, or of one that leads there."""
    *via, (layer, head) = trail(subject, settings)[:steps]
    asked, relative = made.target(subject, settings), settings["relative"] == "yes"
    return writers_of(subject, asked, layer, head, via, relative)


def steps(subject: Subject, settings: Settings) -> np.ndarray:
    """The trail with the share that flows along it, as JSON: [layer, head, share], from 1."""
    found = enumerate(trail(subject, settings), 1)
    return packed([[layer + 1, head + 1, writers(subject, settings, n).share] for n, (layer, head) in found])


def heads(subject: Subject, settings: Settings) -> np.ndarray:
    return writers(subject, settings).heads.numpy()


def arrays(subject: Subject, settings: Settings) -> dict[str, np.ndarray]:
    """Positions are not a number where there are none."""
    found = writers(subject, settings)
    positions = np.nan if found.positions is None else found.positions
    return {
        "written_by_heads": found.heads.numpy(),
        "written_by_layers": np.stack([found.biases.numpy(), found.mlps.numpy()]),
        "written_otherwise": np.asarray(
            [found.share, found.total, found.embedding, positions, found.constant]
        ),
    }


def part(subject: Subject, settings: Settings) -> np.ndarray:
    """What one writer gave, by the patch at which the head reads it; of no writer, all together."""
    found, chosen = writers(subject, settings).by_token, settings["writer"]
    kind, *numbers = chosen.split(".")
    place = tuple(int(number) - 1 for number in numbers)
    about = subject.about
    if not chosen:
        ends = [one for one in (found.embedding, found.positions, found.constant) if one is not None]
        layered = found.heads.nansum(dim=(0, 1)) + (found.biases + found.mlps).nansum(dim=0)
        tokens = sum(ends) + layered
    else:
        there = all(0 <= one < most for one, most in zip(place, (about.layers, about.heads), strict=False))
        tokens = found.of(late.writers.Writer(kind, *place)) if there else None
        if tokens is None:
            raise WrongSetting(f"Given writer={chosen}; this model has no such writer.")
    return made.by_patch(subject, tokens)


ITEMS = {"writer_heads": heads, "writer_map": part, "trail": steps}
