"""Faithfulness of saliency methods over a set of images.

For the prediction of each image, every method computes a saliency map, and patches are removed in the order
of the map (one order per image; ties are broken at random with the image's seed). `ahead` holds the paired
differences of every two methods for each image. Pairing removes the variation that all maps of a hard image
share from the comparison. Methods that need a forward pass for every patch or step run only on request.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vitviz.analyses.correlation import spearman
from vitviz.analyses.faithfulness.curves import SCORES
from vitviz.analyses.faithfulness.evaluation import Faithfulness, compute_maps, evaluate_methods
from vitviz.analyses.faithfulness.pointing import box_coverage, energy_in_boxes, pointing_hit
from vitviz.analyses.faithfulness.ranking import ALIKE
from vitviz.analyses.protocol import DENSE
from vitviz.analyses.saliency import METHODS, STEPPED, check_steps
from vitviz.engine.studies import saliency
from vitviz.errors import VitvizError
from vitviz.surveys.labels import Boxes
from vitviz.surveys.measure import MeasuredImage, Quantity
from vitviz.traces.runs import PATCHES_AS

EXPENSIVE = ("integrated_gradients", "leave_one_out")
INTEGRATED = (  # the names are attributes of SaliencyMap
    Quantity("steps", "", "Integrated gradients: steps"),
    Quantity("change", "", "Integrated gradients: relative change of the map by the last doubling (L1)"),
    Quantity("converged", "", "Integrated gradients: images whose map became stable", "share of images"),
    Quantity("unexplained", "", "Integrated gradients: completeness gap", "logits"),
)
POINTING = (
    Quantity("hit", "method", "The patch with the largest value is in the object's box", "share of images"),
    Quantity("energy", "method", "Share of the positive values in the object's box", "share"),
    Quantity("box", "", "Share of the image that the box covers", "share"),
)
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True)
class FaithfulnessMeasure:
    """Faithfulness of saliency maps, compared with random maps.

    Args:
        methods: Names of saliency methods. "random" is always added.
        protocols: Ways to remove patches.
        boxes: Object boxes for the pointing game and the energy inside the box.
        label: Explain the true class instead of the model's prediction.
        saco: Compute SaCo too, which costs as much as the removal curves.
        seed: Seed of random orders and random maps.
        shares: Fractions of patches removed.
        steps: Steps of integrated gradients. None doubles them for each image until its map is stable.

    Raises:
        VitvizError: For an unknown method or protocol, and for `steps` without integrated gradients.
    """

    methods: tuple[str, ...] = tuple(name for name in METHODS if name not in (*EXPENSIVE, *DENSE))
    protocols: tuple[str, ...] = ("dropped",)
    boxes: Boxes | None = None
    label: bool = False
    saco: bool = False
    seed: int = 0
    shares: tuple[float, ...] = SHARES
    steps: int | None = None
    name: str = "trial"
    says: str = "how well maps of relevance predict what the model loses, beside chance"

    def __post_init__(self):
        unknown = [one for one in self.methods if one not in METHODS]
        other = [one for one in self.protocols if one not in PATCHES_AS]
        if unknown or other or not self.protocols:
            given = ", ".join(unknown + other) or "no protocol"
            raise VitvizError(
                f"{given} is not valid; expected methods of {', '.join(METHODS)} and protocols of"
                f" {', '.join(PATCHES_AS)}."
            )
        check_steps(self.steps)
        if self.steps is not None and not self._integrates:
            raise VitvizError(f"steps={self.steps} is not valid; expected {STEPPED} among the methods.")
        object.__setattr__(self, "methods", tuple(dict.fromkeys([*self.methods, "random"])))

    @property
    def _integrates(self) -> bool:
        """Return True if integrated gradients is among the methods."""
        return STEPPED in self.methods

    @property
    def settings(self) -> str:
        """Return an identifier of all settings that affect the numbers, for the resumption of a survey."""
        boxes = self.boxes.digest if self.boxes else ""
        details = repr((self.methods, self.protocols, boxes, self.label, self.saco, self.seed, self.shares))
        details += f"Gauss-Legendre {self.steps}" * self._integrates
        return f"trial {hashlib.sha256(details.encode()).hexdigest()[:16]}"

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The arrays measured per image; SaCo, convergence and box scores depend on the settings."""
        result = [
            Quantity("most", "protocol method score", "Area, most relevant removed first", "score"),
            Quantity("least", "protocol method score", "Area, least relevant removed first", "score"),
            Quantity("ahead", "protocol method other score", "Gap of one method minus the other's", "score"),
            Quantity("alike", "method", "Rank correlation of the maps of the two most probable classes", ""),
        ]
        result += [Quantity("saco", "protocol method", "SaCo")] if self.saco else []
        result += INTEGRATED if self._integrates else ()
        result += POINTING if self.boxes else ()
        return tuple(result)

    def of(self, seen: MeasuredImage) -> dict[str, np.ndarray]:
        """Return an image's removal areas, gaps, map correlations and optional scores by method.

        {} if `label` is set and the true class unknown. Refusals go to `seen.refused`.
        """
        logits = seen.trace.require_logits("no map can be tried")
        if self.label and seen.label is None:
            return {}
        first, *second = logits.topk(min(2, len(logits))).indices.tolist()
        target = seen.label if self.label and len(logits) > 1 else first
        made, seed = {}, self._seed_of(seen)
        trials, asked = [], {"draws": 1, "groups": 10 * self.saco, "steps": self.steps}
        for protocol in self.protocols:
            passes = saliency.explained(seen.inspector, seen.trace, target, protocol)
            given = passes, self.methods, protocol, seed, self.shares
            trials.append(evaluate_methods(*given, known_maps=made, **asked))
            made = dict(trials[0].maps)
        for method, reason in trials[0].refused.items():
            seen.refused[f"{self.name}.{method}"] = reason
        others = [one for one in (first, *second) if one != target]  # empty for a single output
        alike = self._alike(seen, made, others[0]) if others else np.full(len(self.methods), np.nan)
        result = self._areas(trials) | {"alike": alike}
        if self._integrates:
            names, own = (one.name for one in INTEGRATED), made.get(STEPPED)
            result |= {name: np.asarray(getattr(own, name, None), float) for name in names}
        return result | self._pointing(seen, made, seed)

    def _areas(self, trials: Sequence[Faithfulness]) -> dict[str, np.ndarray]:
        """Return areas (most, least relevant first), gaps, and SaCo if `saco` is set, for all methods.

        `trials` has one result per protocol; methods and scores without a result are NaN.
        """
        shape = (len(trials), len(self.methods), len(SCORES))
        sides = np.full((2, *shape), np.nan)
        saco = np.full(shape[:2], np.nan)
        for i, trial in enumerate(trials):
            for j, method in enumerate(self.methods):
                if method in trial.curves:
                    saco[i, j] = trial.curves[method].saco
                    for k, score in enumerate(SCORES):  # NaN for a score that this head does not have
                        if score in trial.scores:
                            sides[:, i, j, k] = trial.areas(method, score)
        gaps = sides[1] - sides[0]
        result = {"most": sides[0], "least": sides[1], "ahead": gaps[:, :, None] - gaps[:, None]}
        return result | ({"saco": saco} if self.saco else {})

    def _alike(self, seen: MeasuredImage, made: dict, other: int) -> np.ndarray:
        """Return, by method, the rank correlation of its map in `made` with its map of class `other`.

        NaN for expensive, random and refused methods; 0 for a constant map.
        """
        passes = saliency.explained(seen.inspector, seen.trace, other)
        result = np.full(len(self.methods), np.nan)
        asked = [one for one in self.methods if one in made and one not in (*EXPENSIVE, "random")]
        others, refused = compute_maps(passes, asked)
        for method, one in others.items():
            alike = spearman(made[method].map, one.map)
            # a constant map has no order and correlates with nothing
            result[self.methods.index(method)] = 0.0 if alike is None else alike
        for method, reason in refused.items():
            seen.refused[f"{self.name}.{ALIKE}.{method}"] = reason
        return result

    def _pointing(self, seen: MeasuredImage, made: dict, seed: int) -> dict[str, np.ndarray]:
        """Return pointing hits and energy in the boxes per method, and the share the boxes cover.

        {} without a box in the crop; `seed` is that of the random map.
        """
        boxes = self.boxes.on_input(seen.name, seen.trace) if self.boxes else ()
        if not boxes:
            return {}
        grid, numbers = seen.trace.grid, torch.Generator().manual_seed(seed)
        share, hits, energies = box_coverage(grid, boxes), [], []
        for method in self.methods:
            values = made[method].map if method in made else None
            if method == "random":
                values = torch.rand(grid.rows, grid.cols, generator=numbers, dtype=torch.float64)
            hits.append(np.nan if values is None else pointing_hit(values, grid, boxes))
            energies.append(np.nan if values is None else energy_in_boxes(values, share))
        result = {"hit": hits, "energy": energies, "box": share.mean().item()}
        return {name: np.asarray(value) for name, value in result.items()}

    def _seed_of(self, seen: MeasuredImage) -> int:
        """Return a seed derived from the pixels, independent of the source and the position in it."""
        details = seen.trace.view.picture.tobytes() + str(self.seed).encode()
        return int.from_bytes(hashlib.sha256(details).digest()[:4], "little") // 1000

    def lines(self, values: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
        """Yield one dict per protocol and method for the long table; `values` are those of a `Row`."""
        own = {name.partition(".")[2]: value for name, value in values.items() if name.startswith("trial.")}
        if "most" not in own:
            return
        for i, protocol in enumerate(self.protocols):
            for j, method in enumerate(self.methods):
                details: dict[str, Any] = {"method": method, "patches_as": protocol}
                for k, score in enumerate(SCORES):
                    details |= {f"{side}_{score}": float(own[side][i, j, k]) for side in ("most", "least")}
                for name in ("alike", "hit", "energy"):
                    details[name] = float(own[name][j]) if name in own else float("nan")
                details["saco"] = float(own["saco"][i, j]) if "saco" in own else float("nan")
                yield details
