"""Endpoints for programs: what the page shows, as JSON, for `gradio_client` and any other HTTP client.

Names, parameters and shapes are a promise (docs/api.md has an example of each); the page's own listeners are private.
Type hints and docstrings become Gradio's documentation, so they are real objects here and not strings: this file does
without `from __future__ import annotations`. Layers and heads count from 1, as on the page; patches from 0, row by row.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import gradio as gr
from gradio.utils import get_upload_folder

from vitviz import analyses
from vitviz.errors import ImageError, VitvizError
from vitviz.panels import Subject
from vitviz.panels.seen import sweep_of
from vitviz.ui.plain import cells, plain, whole
from vitviz.ui.studio import Studio

Picture = gr.FileData | str


def _of(trace: Any) -> dict[str, str]:
    """Whose numbers these are, and the precision in which the model computed."""
    return {"checkpoint": trace.checkpoint, "dtype": trace.dtype}


class Endpoints:
    """The endpoints over one studio. An error is a sentence for the caller."""

    def __init__(self, studio: Studio):
        self._studio = studio

    def predict(self, image: Picture, checkpoint: str = "", count: int = 5) -> dict:
        """The likeliest classes of a picture.

        Args:
            image: a file (handle_file), or the name of a sample such as "chelsea"
            checkpoint: a name that `checkpoints` lists; empty for the first one
            count: how many classes, from 1

        Returns:
            {checkpoint, dtype, top: [{label, probability}], input: [height, width] px, grid: {rows, cols, patch, prefix}}
        """
        trace = self._subject(image, checkpoint).trace
        top = [{"label": label, "probability": plain(probability)} for label, probability in trace.top(whole(count, "count", 1, 100_000))]
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
            query: auto (what the classifier reads), mean, a prefix token's name such as class, or a patch's number from 0
            fusion: how the heads are fused: mean, max or min
            discard: share of the smallest attention that is set to zero, from 0 to 0.99
            residual: weight of the skip connection, from 0 to 1
            layers: first and last layer counted from 1, such as "1-6"; empty for all

        Returns:
            {checkpoint, dtype, map: rows x cols, box: where the map lies on the upload (left, top, right, bottom px), grid}
        """
        given = {"query": query, "fusion": fusion, "discard": discard, "residual": residual, "layers": layers}
        panel, subject = self._studio.panel("rollout"), self._subject(image, checkpoint)
        found = panel.item(subject, "map", panel.settings({name: str(value) for name, value in given.items()}))
        trace = subject.trace
        return {**_of(trace), "map": plain(found), "box": list(trace.view.box), "grid": cells(trace.grid)}

    def attention_distance(self, image: Picture, checkpoint: str = "", renormalise: bool = False) -> dict:
        """How far each head of each layer looks, in pixels of the model's input.

        Args:
            image: a file (handle_file), or the name of a sample
            checkpoint: a name that `checkpoints` lists; empty for the first one
            renormalise: divide each row by its attention on patches; the paper does not

        Returns:
            {checkpoint, dtype, distance: layers x heads px, prefix_mass: layers x heads, from 0 to 1, uniform: px of attention spread evenly, grid}
        """
        trace = self._subject(image, checkpoint).trace
        measured = sweep_of(trace).distances
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
            direction: "attends to" is a row of the attention and sums to 1 with the prefix; "attended by" a column

        Returns:
            {checkpoint, dtype, patches: rows x cols, prefix: {name: weight}, grid}
        """
        if direction not in ("attends to", "attended by"):
            raise ValueError(f"direction={direction!r} is neither 'attends to' nor 'attended by'.")
        trace = self._subject(image, checkpoint).trace
        layer = whole(layer, "layer", 1, len(trace.layers))
        head = whole(head, "head", 1, trace.layers[layer - 1].heads)
        asked = int(query) if str(query).isdecimal() else query
        weights = (analyses.attends_to if direction == "attends to" else analyses.attended_by)(trace, layer - 1, asked)[head - 1].numpy()
        grid = trace.grid
        prefix = dict(zip(grid.prefix_names, plain(weights[: grid.prefix]), strict=True))
        return {
            **_of(trace),
            "patches": plain(weights[grid.prefix :].reshape(grid.rows, grid.cols)),
            "prefix": prefix,
            "grid": cells(grid),
        }

    def filters(self, checkpoint: str = "", count: int = 28) -> dict:
        """The principal components of the linear embedding's filters, most variance first.

        Args:
            checkpoint: a name that `checkpoints` lists; empty for the first one
            count: how many components, from 1

        Returns:
            {checkpoint, pictures: count x P x P x 3 of unit norm, not scaled for display, variance: count shares of the whole}
        """
        from vitviz import models

        inspector = self._inspector(checkpoint)
        found = models.embedding_filters(inspector, whole(count, "count", 1, 100_000))
        return {"checkpoint": inspector.checkpoint.name, "pictures": plain(found.pictures), "variance": plain(found.variance)}

    def position_similarity(self, checkpoint: str = "", patch: int | None = None) -> dict:
        """The cosine of the position embeddings of the patches, at the checkpoint's own input size.

        Args:
            checkpoint: a name that `checkpoints` lists; empty for the first one
            patch: a patch's number from 0, row by row, for its similarities alone; none for those of all patches

        Returns:
            {checkpoint, similarity: rows x cols x rows x cols, or rows x cols of the one patch, from -1 to 1}
        """
        from vitviz import models

        inspector = self._inspector(checkpoint)
        found = models.position_similarity(inspector)
        if patch is not None:
            rows, cols = found.shape[:2]
            found = found[divmod(whole(patch, "patch", 0, rows * cols - 1), cols)]
        return {"checkpoint": inspector.checkpoint.name, "similarity": plain(found)}

    def checkpoints(self) -> list:
        """The checkpoints that can be asked for, those on this server first.

        Returns:
            a list of {name, architecture, source, input_size: [channels, height, width], trained_on, licence, paper, note, on_disk}
        """
        from vitviz import engine

        known = {checkpoint.name: checkpoint for checkpoint in engine.checkpoints(self._studio.settings.weights)}
        fields = ("name", "architecture", "source", "input_size", "trained_on", "licence", "paper", "note", "on_disk")  # not where it lies
        return [{field: getattr(known[name], field) for field in fields} for name in self._studio.names() if name in known]

    def _inspector(self, checkpoint: str):
        return self._studio.inspector(str(checkpoint).strip() or self._studio.settings.checkpoint)

    def _subject(self, image: Any, checkpoint: str) -> Subject:
        name = str(checkpoint).strip() or self._studio.settings.checkpoint
        return self._studio.subject(self._studio.look(self._picture(image), name))

    def _picture(self, image: Any) -> str:
        """The picture's key: of a sample by its name, or of an upload. A bare path would be one on this server."""
        if isinstance(image, str):
            return self._studio.keep_sample(image)
        path = image.get("path") if isinstance(image, dict) else getattr(image, "path", None)
        uploads = Path(get_upload_folder()).resolve()
        if not isinstance(path, str) or not Path(path).resolve().is_relative_to(uploads) or not Path(path).is_file():
            raise ImageError("image is neither an uploaded file (gradio_client's handle_file) nor the name of a sample.")
        return self._studio.keep_picture(path)


PUBLIC = ("predict", "rollout", "attention_distance", "patch_attention", "filters", "position_similarity", "checkpoints")


def publish(studio: Studio) -> None:
    """Adds the endpoints to the page that is being built."""
    endpoints = Endpoints(studio)
    for name in PUBLIC:
        gr.api(_spoken(getattr(endpoints, name)), api_name=name)


def _spoken(fn: Callable) -> Callable:
    """The same, with what it refuses as Gradio's error, whose text reaches the caller; anything else stays inside."""

    @wraps(fn)
    def answer(*given, **named):
        try:
            return fn(*given, **named)
        except (VitvizError, ValueError, IndexError) as error:
            raise gr.Error(str(error), print_exception=False) from error

    return answer
