"""The endpoints about a picture as a checkpoint sees it.

Type hints and docstrings become Gradio's documentation, so hints are real objects here and not strings: this
file does without `from __future__ import annotations`.
"""

from typing import Any, Literal

from vitviz import analyses, models
from vitviz.errors import WrongSetting
from vitviz.runs import Without
from vitviz.ui.serving.derived import Picture
from vitviz.ui.serving.endpoints.asking import Asking
from vitviz.ui.serving.plain import cells, plain, truth, whole
from vitviz.views.shared import sweep_of


class OfPictures(Asking):
    """Answers about one picture."""

    def predict(self, image: Picture, checkpoint: str = "", count: int = 5) -> dict:
        """The likeliest classes of a picture.

        Args:
            image: a file (handle_file), or the name of a sample such as "chelsea"
            checkpoint: a name that `checkpoints` lists; empty for the first one
            count: how many classes, from 1

        Returns:
            {checkpoint, dtype, top: [{label, probability}], input: [height, width] px, grid: {rows, cols,
            patch, prefix}}
        """
        trace = self._subject(image, checkpoint).trace
        top = [
            {"label": label, "probability": plain(probability)}
            for label, probability in trace.top(whole(count, "count", 1, 100_000))
        ]
        return {**_of(trace), "top": top, "input": list(trace.grid.pixels), "grid": cells(trace.grid)}

    def rollout(
        self,
        image: Picture,
        checkpoint: str = "",
        query: str = "auto",
        fusion: Literal["mean", "max", "min"] = "mean",
        discard: float = 0.0,
        residual: float = 0.5,
        layers: str = "",
    ) -> dict:
        """Attention rollout: how much of each patch has reached the query through all layers.

        Args:
            image: a file (handle_file), or the name of a sample
            checkpoint: a name that `checkpoints` lists; empty for the first one
            query: auto (what the classifier reads), mean, a prefix token's name, or a patch's number from 0
            fusion: how the heads are fused: mean, max or min
            discard: share of the smallest attention that is set to zero, from 0 to 0.99
            residual: weight of the skip connection, from 0 to 1
            layers: first and last layer counted from 1, such as "1-6"; empty for all

        Returns:
            {checkpoint, dtype, map: rows x cols, box: where the map lies on the upload (left, top, right,
            bottom px), grid}
        """
        given = {"query": query, "fusion": fusion, "discard": discard, "residual": residual, "layers": layers}
        view, subject = self._studio.view("rollout"), self._subject(image, checkpoint)
        settings = view.settings({name: str(value) for name, value in given.items()}, subject.about)
        with self._studio.reading(subject):
            found = view.item(subject, "map", settings)
        trace = subject.trace
        return {**_of(trace), "map": plain(found), "box": list(trace.view.box), "grid": cells(trace.grid)}

    def attention_distance(self, image: Picture, checkpoint: str = "", renormalise: bool = False) -> dict:
        """How far each head of each layer looks, in pixels of the model's input.

        Args:
            image: a file (handle_file), or the name of a sample
            checkpoint: a name that `checkpoints` lists; empty for the first one
            renormalise: divide each row by its attention on patches; the paper does not

        Returns:
            {checkpoint, dtype, distance: layers x heads px, prefix_mass: layers x heads, from 0 to 1,
            uniform: px of attention spread evenly, grid}
        """
        renormalise = truth(renormalise, "renormalise")
        subject = self._subject(image, checkpoint)
        trace = subject.trace
        with self._studio.reading(subject):
            measured = sweep_of(subject).distances
        return {
            **_of(trace),
            "distance": plain(measured.renormalised if renormalise else measured.distance),
            "prefix_mass": plain(measured.prefix_mass),
            "uniform": plain(analyses.uniform_distance(trace.grid, renormalise=renormalise)),
            "grid": cells(trace.grid),
        }

    def patch_attention(
        self,
        image: Picture,
        checkpoint: str = "",
        layer: int = 1,
        head: int = 1,
        query: str = "0",
        direction: Literal["attends to", "attended by"] = "attends to",
    ) -> dict:
        """The attention of one token in one head: what it attends to, or who attends to it.

        Args:
            image: a file (handle_file), or the name of a sample
            checkpoint: a name that `checkpoints` lists; empty for the first one
            layer: from 1
            head: from 1
            query: a patch's number from 0, row by row, or a prefix token's name such as class
            direction: "attends to" is a row of the attention (1 in all); "attended by" a column

        Returns:
            {checkpoint, dtype, patches: rows x cols, prefix: {name: weight}, grid}
        """
        if direction not in ("attends to", "attended by"):
            raise WrongSetting(f"direction={direction!r} is neither 'attends to' nor 'attended by'.")
        trace = self._subject(image, checkpoint).trace
        layer = whole(layer, "layer", 1, len(trace.layers))
        head = whole(head, "head", 1, trace.layers[layer - 1].heads)
        query = str(query)
        asked = (
            int(query) if query.isdecimal() and len(query) < 10 else query
        )  # of thousands Python makes no number
        weights = (analyses.attends_to if direction == "attends to" else analyses.attended_by)(
            trace, layer - 1, asked
        )[head - 1].numpy()
        grid = trace.grid
        prefix = dict(zip(grid.prefix_names, plain(weights[: grid.prefix]), strict=True))
        return {
            **_of(trace),
            "patches": plain(weights[grid.prefix :].reshape(grid.rows, grid.cols)),
            "prefix": prefix,
            "grid": cells(grid),
        }

    def without(self, image: Picture, without: str, checkpoint: str = "", count: int = 5) -> dict:
        """The answer before and after heads, MLPs or patches are taken away.

        Args:
            image: a file (handle_file), or the name of a sample
            without: such as "heads=8.2_1.1 mlps=3 patches=0.17 heads_as=zero"; layers and heads from 1
            checkpoint: a name that `checkpoints` lists; empty for the first one
            count: how many classes, from 1

        Returns:
            {checkpoint, dtype, without, before: [{label, probability}], after: [{label, probability}]}
        """
        count, asked = whole(count, "count", 1, 100_000), Without.parse(str(without))
        name = self._name(checkpoint)
        before, after = self._subject(image, name).trace, self._subject(image, name, asked.text()).trace
        told = {"before": before, "after": after}
        top = {
            name: [{"label": one, "probability": plain(p)} for one, p in trace.top(count)]
            for name, trace in told.items()
        }
        return {**_of(after), "without": asked.text(), **top}

    def lens(
        self, image: Picture, checkpoint: str = "", target: int = -1, form: Literal["now", "share"] = "now"
    ) -> dict:
        """The answer forming: what the tokens of every depth give for a class, from what enters block 1 to
        the logit.

        Args:
            image: a file (handle_file), or the name of a sample
            checkpoint: a name that `checkpoints` lists; empty for the first one
            target: a class, from 0; -1 for the likeliest
            form: "now" norms the tokens afresh; "share" holds the final norm, and adds up to the logit

        Returns:
            {checkpoint, dtype, target, logits: by depth, depth 0 entering block 1}
        """
        subject = self._subject(image, checkpoint)
        if subject.trace.logits is None:
            raise WrongSetting(f"{subject.checkpoint} has no classifier, so there is no answer that forms.")
        classes = subject.trace.logits.numel()
        asked = whole(target, "target", -1, classes - 1)
        asked = int(subject.trace.logits.argmax()) if asked < 0 else asked
        with self._studio.reading(subject):
            found = models.lens(subject.inspector, subject.trace, form=str(form))[:, asked]
        return {**_of(subject.trace), "target": asked, "logits": plain(found)}


def _of(trace: Any) -> dict[str, str]:
    """Whose numbers these are, and the precision in which the model computed."""
    return {"checkpoint": trace.checkpoint, "dtype": trace.dtype}
