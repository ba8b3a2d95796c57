"""Given classes: directions to compare an image's embedding with, such as the embeddings of sentences.

    logit_c = scale cos(z, t_c) + bias,   cos(z, t_c) = <z, t_c> / |z|

z is the image's embedding, t_c a unit vector. CLIP takes the softmax over the classes (Radford et al. 2021,
arXiv 2103.00020), so a probability depends on the other classes. SigLIP takes the sigmoid of each logit by
itself (Zhai et al. 2023, arXiv 2303.15343). A score does not show whether the image contains any of the
classes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from vitviz.errors import VitvizError, first_line, quoted
from vitviz.traces.display import NotebookDisplay
from vitviz.traces.localized_text import Verbatim
from vitviz.traces.unicode import require_unicode

SCORES = ("softmax", "sigmoid")
ENDINGS = (".npz", ".safetensors")


@dataclass(frozen=True, eq=False)
class Classes(NotebookDisplay):
    """Class labels with one vector each, and the score that turns cosines with an image into probabilities.

    Args:
        labels: one name per class.
        vectors: (class, width); normalised to unit length and stored in float32.
        score: "softmax" over all classes, or "sigmoid" of each.
        scale, bias: logit = scale * cosine + bias.
        model: name of the checkpoint that the vectors belong to; None for any model of their width.

    Raises:
        VitvizError: labels and vectors do not fit, a vector has no direction, or `score`, `scale` or `bias`
            is invalid.

    >>> classes = Classes(["a cat", "a dog"], [[3.0, 4.0], [0.0, 2.0]], scale=10.0)
    >>> classes.labels, classes.vectors.norm(dim=1).tolist()
    (('a cat', 'a dog'), [1.0, 1.0])
    """

    labels: tuple[str, ...]
    vectors: Float[Tensor, "class width"]
    score: Literal["softmax", "sigmoid"] = "softmax"
    scale: float = 100.0  # CLIP's scale, which training capped at 100
    bias: float = 0.0
    model: str | None = None

    def __post_init__(self):
        labels = tuple(Verbatim(require_unicode(str(label), "the label")) for label in self.labels)
        require_unicode(self.model or "", "the model's name")
        vectors = torch.as_tensor(self.vectors).detach().double().cpu()
        if vectors.ndim != 2 or not len(labels) == len(vectors) > 0:
            given = f"{len(labels)} labels and vectors of shape {tuple(vectors.shape)}"
            raise VitvizError(f"{given} do not match; expected one vector for each label: (class, width).")
        lengths = vectors.norm(dim=1, keepdim=True)
        if not (lengths.isfinite() & (lengths > 0)).all():
            wrong = labels[int((~(lengths.isfinite() & (lengths > 0))).flatten().nonzero()[0])]
            raise VitvizError(f"The vector of {quoted(wrong)} has no direction: it is zero or not finite.")
        numbers = torch.tensor([float(self.scale), float(self.bias)])
        if self.score not in SCORES or not numbers.isfinite().all() or self.scale <= 0:
            raise VitvizError(
                f"score={quoted(self.score)}, scale={quoted(self.scale)}, bias={quoted(self.bias)} are not"
                f" valid; expected one of {', '.join(SCORES)}, a scale above 0, and a number."
            )
        for name, value in {"labels": labels, "vectors": (vectors / lengths).float()}.items():
            object.__setattr__(self, name, value)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that affects a prediction; equal for equal classes."""
        rest = json.dumps([self.labels, self.score, self.scale, self.bias, self.model])
        return hashlib.sha256(rest.encode() + self.vectors.numpy().tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Classes) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def save(self, path: str | PathLike) -> None:
        """Save plain arrays into a .npz or .safetensors file; raise VitvizError for another file ending."""
        about = {name: value for name, value in asdict(self).items() if name not in ("labels", "vectors")}
        about["model"] = self.model or ""
        if _ending(path) == ".npz":
            np.savez(path, vectors=self.vectors.numpy(), labels=np.array(self.labels), **about)
        else:
            details = {"labels": json.dumps(self.labels), **{name: str(one) for name, one in about.items()}}
            save_file({"vectors": self.vectors.contiguous()}, path, details)

    @classmethod
    def load(cls, path: str | PathLike) -> Classes:
        """Load classes from a .npz or .safetensors file, written by `save` or by hand.

        The file holds the arrays `labels` and `vectors`, and optionally `score`, `scale`, `bias` and `model`.
        No code in the file is run. Raises VitvizError for a file without classes.

        >>> Classes.load("sentences.npz").labels  # doctest: +SKIP
        ('a photo of a cat', 'a photo of a dog')
        """

        def read() -> Mapping[str, Any]:
            if _ending(path) == ".safetensors":
                return tensors_in(Path(path).read_bytes())
            with np.load(path, allow_pickle=False) as file:
                return {name: file[name] for name in file.files if name in cls.__dataclass_fields__}

        return cls.from_contents(read, Path(path).name)

    @classmethod
    def from_contents(cls, found: Callable[[], Mapping[str, Any]], called: str) -> Classes:
        """Return the classes in a file's contents, which the function `found` reads and returns.

        `called` is the file's name, for error messages. Keys and errors are as in `load`.
        """
        try:
            given = found()
            labels = given["labels"]
            labels = json.loads(labels) if isinstance(labels, str) else labels.tolist()
            kinds = {"score": str, "scale": float, "bias": float, "model": lambda name: str(name) or None}
            about = {name: kind(given[name]) for name, kind in kinds.items() if name in given}
            if not isinstance(labels, list) or not all(isinstance(one, str) for one in labels):
                raise ValueError("its labels are no list of texts")
            return cls(tuple(labels), given["vectors"], **about)
        except VitvizError:
            raise
        except (OSError, EOFError, KeyError, TypeError, ValueError, MemoryError, RuntimeError, BadZipFile,
                SafetensorError) as error:  # fmt: skip
            expected = "expected the arrays labels and vectors"
            raise VitvizError(f"{called} holds no classes ({first_line(error)}); {expected}.") from error


def tensors_in(data: bytes) -> dict[str, Any]:
    """Return one dictionary with the tensors and the metadata texts of a .safetensors file, by name."""
    tensors = load(data)  # checks the header first
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {**tensors, **header.get("__metadata__", {})}


def _ending(path: str | PathLike) -> str:
    """Return a path's suffix in lower case; raise VitvizError unless it is .npz or .safetensors."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        expected = f"expected a file ending in {' or '.join(ENDINGS)}"
        raise VitvizError(f"{quoted(Path(path).name)} is not a valid file name; {expected}.")
    return ending
