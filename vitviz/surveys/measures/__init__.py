"""Built-in measures by name (`MEASURES`), and the measures for the comparison of checkpoints (`LAYERS`).

To add a measure, define its class here and list it in `KINDS`.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np
import torch

from vitviz import analyses
from vitviz.analyses.cka import LEAST
from vitviz.engine.studies import attribution, circuits
from vitviz.errors import UnsupportedModel, VitvizError, quoted
from vitviz.surveys.measure import Measure, MeasuredBatch, MeasuredImage, Quantity
from vitviz.surveys.measures.trial import FaithfulnessMeasure
from vitviz.traces.head_type import NO_DECISION, HeadType, predictions_of
from vitviz.traces.samples import sample_image, samples
from vitviz.traces.trace import Trace, TraceBatch, copy_to_cpu


class DistanceMeasure:
    name = "distance"
    says = "attention distance of each head, in pixels of the model's input (figure 7 right)"
    quantities = (
        Quantity("distance", "layer head", "Attention distance", "px"),
        Quantity("renormalised", "layer head", "Attention distance, rows renormalised over patches", "px"),
    )
    batched = True

    def of(self, seen: MeasuredImage | MeasuredBatch):
        """Return the arrays named in `quantities`, (layer, head), computed from the attention weights.

        Measures of a survey share one reading of them.
        """
        measured = seen.once(analyses.head_statistics if "entropy" in seen.measures else analyses.distances)
        return {one.name: getattr(measured, one.name) for one in self.quantities}


class PrefixMassMeasure(DistanceMeasure):
    name = "prefix_mass"
    says = "share of the patches' attention that goes to prefix tokens, by head"
    quantities = (Quantity("prefix_mass", "layer head", "Attention on prefix tokens", "share, 0 to 1"),)


class EntropyMeasure:
    name = "entropy"
    says = "entropy of each head's attention, mean over all queries, in nats"
    quantities = (Quantity("entropy", "layer head", "Entropy of attention, all queries", "nats"),)
    batched = True

    def of(self, seen: MeasuredImage | MeasuredBatch):
        """Return the entropy of attention in nats, mean over all queries, (layer, head)."""
        if seen.measures & {"distance", "prefix_mass"}:  # which read the same attention
            return {"entropy": seen.once(analyses.head_statistics).entropy}
        layers = [analyses.attention_entropy(seen.trace, layer) for layer in range(len(seen.trace.layers))]
        return {"entropy": torch.stack(layers, dim=-2)}


TITLE = "Length of skip over {branch}, {tokens}"


class SkipMeasure:
    name = "skip"
    says = (
        "length of the skip connection relative to each branch, by layer: mean over patches, and class token"
    )
    quantities = tuple(
        Quantity(f"{branch}_{tokens}", "layer", TITLE.format(branch=said, tokens=of), "ratio")
        for tokens, of in (("patches", "mean over patches"), ("class", "class token"))
        for branch, said in (("attention", "attention"), ("mlp", "MLP"))
    )

    batched = True

    def of(self, seen: MeasuredImage | MeasuredBatch):
        """Return length ratios of skip to branch by layer: mean of patches and, if any, the class token's.

        Raise UnsupportedModel if a gate stands between heads and projection.
        """
        grid = seen.trace.grid
        tail = seen.inspector.tail(grid.pixels, seen.trace.tokens[0].device)
        result = analyses.skip_ratios(seen.trace, tail.layers)
        ratios = {}
        for branch, ratio in vars(result).items():
            ratios[f"{branch}_patches"] = ratio[..., grid.prefix :].mean(dim=-1)
            if "class" in grid.prefix_names:
                ratios[f"{branch}_class"] = ratio[..., grid.prefix_names.index("class")]
        return ratios


class SimilarityMeasure:
    name = "similarity"
    says = "similarities between the images at every depth, for vitviz.cka; four or more images per batch"
    quantities: tuple[Quantity, ...] = ()
    batched = True

    def of(self, seen: MeasuredImage | MeasuredBatch):
        """Return {}: this measure has no result for a single image; `together` measures batches."""
        return {}

    def together(self, traces: TraceBatch, pictures: Sequence[str]):
        """Return the Gram matrices of a batch's tokens by depth; `pictures` are the images' identifiers."""
        return analyses.grams_of(traces, pictures)


class AttributionMeasure:
    """Contributions of heads, MLPs and the rest to the top logit of each image.

    The contributions of an image sum to its top logit; their averages sum to the average top logit. For a
    softmax, which is invariant to adding a constant to all logits, and for given classes, they sum to the top
    logit minus the mean over classes.
    """

    name = "ledger"
    says = (
        "contribution of each head and MLP to the prediction's logit; for a softmax and for given classes,"
        " relative to the mean over classes"
    )
    quantities = (
        Quantity("heads", "layer head", "Contributions of heads to the prediction's logit", "logits"),
        Quantity("mlps", "layer", "Contributions of MLPs to the prediction's logit", "logits"),
        Quantity("rest", "", "Contribution of the input of block 1 and of all biases", "logits"),
        Quantity(
            "answer", "", "Logit of the prediction (for a softmax: minus the mean over classes)", "logits"
        ),
    )

    batched = True

    def of(self, seen: MeasuredImage | MeasuredBatch):
        """Return the contributions of heads, MLPs and the rest to the top logit, and this logit ("answer").

        Raise VitvizError without logits or for a head of several values.
        """
        logits, trace = seen.trace.require_logits("there is no answer to account for"), seen.trace
        if trace.head_type == "value" and (outputs := logits.shape[-1]) > 1:
            raise VitvizError(f"{trace.checkpoint} gives {outputs} values, none of which is its answer.")
        ledger = attribution.checked_logit_terms(seen.inspector, trace)
        relative = trace.head_type == "softmax" or trace.classes is not None
        account = analyses.attribution_of_predictions(ledger, relative)
        lines = {"heads": account.heads, "mlps": account.mlps}
        rest = sum(value for name, value in account.constants.items() if name != "MLPs")
        return {**lines, "rest": rest, "answer": account.logit}


class LogitLensMeasure:
    name = "lens"
    says = "how often the logit lens has the final prediction, by depth, and with labels the true class"
    quantities = (
        Quantity("agrees", "layer", "The logit lens has the final prediction", "share of images"),
        Quantity("correct", "layer", "The logit lens has the true class", "share of images", labelled=True),
    )
    batched = True

    def of(self, seen: MeasuredImage | MeasuredBatch):
        """Return by depth (0: input of block 1) whether the logit lens gives the final prediction.

        With labels, also whether it has the true class.
        """
        head_type = _predicting(seen.trace)
        # layer 0 is the input of the first block
        named = predictions_of(attribution.logit_lens(seen.inspector, seen.trace), head_type)
        result = {"agrees": named == predictions_of(seen.trace.logits, head_type).unsqueeze(-1)}
        return result if seen.labels is None else result | {"correct": named == seen.labels.unsqueeze(-1)}


class AccuracyMeasure:
    name = "accuracy"
    says = "how often the prediction, or one of the five most probable classes, is correct; needs labels"
    quantities = (
        Quantity("first", "", "The prediction is the true class", "share of images", labelled=True),
        Quantity("first_five", "", "The true class is among the five most probable", "share of images",
                 labelled=True),
        # NaN for independent sigmoids
        Quantity("loss", "", "Cross-entropy of the true class", "nats", labelled=True),
    )  # fmt: skip
    batched = True

    def of(self, seen: MeasuredImage | MeasuredBatch):
        """Return whether the true class is first, whether it is in the first five, and the cross-entropy.

        {} without labels; the loss is NaN if each of several classes has its own sigmoid.
        """
        logits, labels = seen.trace.require_logits("there is no accuracy").double(), seen.labels
        head_type = _predicting(seen.trace)
        if labels is None:
            return {}
        first, place = predictions_of(logits, head_type) == labels, labels.clamp_min(0).unsqueeze(-1)
        binary = head_type == "sigmoid" and logits.shape[-1] == 1
        if binary:  # as a softmax over "no" and "yes"
            logits = torch.cat([torch.zeros_like(logits), logits], dim=-1)
        own = logits.gather(-1, place)
        loss = logits.logsumexp(dim=-1) - own.squeeze(-1)
        if head_type == "sigmoid" and not binary:
            seen.refused["accuracy.loss"], loss = SEVERAL, torch.full_like(loss, torch.nan)
        before = (logits > own).sum(dim=-1)  # classes ranked above the true class
        return {"first": first, "first_five": before < 5, "loss": loss}


SEVERAL = (
    "Each class of this model has its own sigmoid, and it is not known which other classes are true for the"
    " image, so there is no cross-entropy."
)


def _predicting(trace: Trace | TraceBatch) -> HeadType:
    """Return a trace's head type, softmax or sigmoid; raise VitvizError for a head of values."""
    if trace.head_type == "value":
        raise VitvizError(f"{NO_DECISION.format(name=trace.checkpoint)}; leave this measure out.")
    return trace.head_type


class WordsMeasure:
    name = "words"
    says = "what each head writes, for vitviz.heads_in_words; needs sentences as classes"
    quantities = (Quantity("written", "layer head feature", "Output of each head", "cosine", across=True),)
    batched = True

    def of(self, seen: MeasuredImage | MeasuredBatch):
        """Return each head's output as features of the classifier's input, (layer, head, feature).

        Raise VitvizError for an inspector without text classes.
        """
        if seen.inspector.classes is None:
            raise VitvizError(
                f"{seen.trace.checkpoint} has no words to compare with; survey it with"
                " inspector.with_classes(vitviz.text(inspector))."
            )
        ledger = attribution.checked_logit_terms(seen.inspector, seen.trace)
        return {"written": analyses.head_features(ledger)}


_ORDERS = (("share", "largest first"), ("random", "at random"))


class SufficientEdgesMeasure:
    """Number of edges that preserve the prediction.

    The measure runs two forward passes per tested share of the edges: one image costs about as much as
    forty images otherwise.
    """

    name = "smallest_part"
    says = "how many edges preserve the prediction, largest first and at random; expensive"
    quantities = (
        *(Quantity(f"margin_by_{one}", "kept", f"Margin with few edges, {says}", "logits")
          for one, says in _ORDERS),
        *(Quantity(f"stands_by_{one}", "kept", f"Prediction preserved, edges {says}", "share of images")
          for one, says in _ORDERS),
        Quantity("smallest_preserving", "", "Smallest tried part that preserves the prediction",
                 "share of edges"),
        Quantity("preserving_from", "", "Size from which every tried part preserves the prediction",
                 "share of edges"),
        Quantity("tried", "", "Parts tried, largest first", "sizes"),
    )  # fmt: skip

    def of(self, seen: MeasuredImage):
        """Return margins (logits) and preserved predictions by order and tried share of edges.

        Also the shares from which the prediction is preserved; NaN if no tried share preserves it.
        """
        result = circuits.sufficient_edges(seen.inspector, copy_to_cpu(seen.trace), draws=1)
        rows = {name: rows[0].double().cpu().numpy() for name, rows in result.margins.items()}
        margins = {f"margin_by_{name}": row for name, row in rows.items()}
        stands = {f"stands_by_{name}": (row > 0).astype(np.float64) for name, row in rows.items()}
        sizes = {name: getattr(result, name) for name in ("smallest_preserving", "preserving_from")}
        sizes = {name: np.nan if size is None else size / len(result.edges) for name, size in sizes.items()}
        sizes["tried"] = result.tried
        return {**margins, **stands, **{name: np.asarray(size, float) for name, size in sizes.items()}}


KINDS = (
    DistanceMeasure, PrefixMassMeasure, EntropyMeasure, SkipMeasure, SimilarityMeasure, AttributionMeasure,
    LogitLensMeasure, AccuracyMeasure, FaithfulnessMeasure, SufficientEdgesMeasure, WordsMeasure
)  # fmt: skip
MEASURES: dict[str, Measure] = {kind.name: kind() for kind in KINDS}


def select_measures(asked: Iterable[str | Measure]) -> tuple[Measure, ...]:
    """Return measures, given by name or as objects, as a tuple of objects without duplicates.

    Raises:
        VitvizError: For an unknown name, for an object that is not a measure, for two different measures of
            the same name, and for an empty selection.

    >>> [one.name for one in select_measures(["distance", "entropy"])]
    ['distance', 'entropy']
    """
    asked = [asked] if isinstance(asked, str) else list(asked)
    result: dict[str, Measure] = {}
    for one in asked:
        measure = MEASURES.get(one) if isinstance(one, str) else one
        if not isinstance(measure, Measure):
            known = ", ".join(MEASURES)
            raise VitvizError(
                f"There is no measure {quoted(one)}; expected one of {known}, or an object like them."
            )
        if result.setdefault(measure.name, measure) is not measure:
            name = quoted(measure.name)
            raise VitvizError(f"Two different measures are called {name}; give one of them another name.")
    if not result:
        raise VitvizError(f"A survey needs at least one measure; expected some of {', '.join(MEASURES)}.")
    return tuple(result.values())


MOST = 8  # images per batch
PARTS = ((0, 0, 1, 1), (0, 0, 2 / 3, 2 / 3), (1 / 3, 0, 1, 2 / 3), (0, 1 / 3, 2 / 3, 1), (1 / 3, 1 / 3, 1, 1))


class OptionalSkipMeasure(SkipMeasure):
    """SkipMeasure that returns nothing for a model whose blocks are not supported."""

    def of(self, seen: MeasuredImage | MeasuredBatch):
        """Return the ratios of `SkipMeasure`; {} for a model whose blocks are not supported."""
        with suppress(UnsupportedModel):
            return super().of(seen)
        return {}


LAYERS: tuple[Measure, ...] = (
    *(MEASURES[name] for name in ("distance", "prefix_mass", "entropy", "similarity")),
    OptionalSkipMeasure(),
)


def sample_crops() -> list:
    """Return the sample images, each whole and as four overlapping corner crops, as PIL images.

    Four images alone are too few for a meaningful unbiased estimate.

    >>> len(sample_crops())
    20
    """
    result = []
    for sample in samples():
        picture = sample_image(sample.name)
        sides = (*picture.size, *picture.size)
        result += [picture.crop([round(a * b) for a, b in zip(part, sides, strict=True)]) for part in PARTS]
    return result


def batch_size_for(count: int) -> int:
    """Return the batch size for which the fewest images are left in a last batch too small to compare.

    Args:
        count: Number of images.

    Returns:
        Images per batch, greater than `vitviz.analyses.cka.LEAST` and at most 8.

    >>> batch_size_for(20), batch_size_for(9), batch_size_for(3)
    (8, 5, 8)
    """
    return min(range(MOST, LEAST, -1), key=lambda size: count % size if count % size < LEAST else 0)
