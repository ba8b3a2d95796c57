"""The endpoints about checkpoints, without a picture.

Type hints and docstrings become Gradio's documentation, so hints are real objects here and not strings: this
file does without `from __future__ import annotations`.
"""

from vitviz import models
from vitviz.ui.serving.endpoints.asking import Asking
from vitviz.ui.serving.plain import plain, whole


class OfCheckpoints(Asking):
    """Answers about a checkpoint's weights, and which there are."""

    def filters(self, checkpoint: str = "", count: int = 28) -> dict:
        """The principal components of the linear embedding's filters, most variance first.

        Args:
            checkpoint: a name that `checkpoints` lists; empty for the first one
            count: how many components, from 1

        Returns:
            {checkpoint, pictures: count x P x P x 3 of unit norm, not scaled for display, variance: count
            shares of the whole}
        """
        inspector = self._inspector(checkpoint)
        found = models.embedding_filters(inspector, whole(count, "count", 1, 100_000))
        return {
            "checkpoint": inspector.checkpoint.name,
            "pictures": plain(found.pictures),
            "variance": plain(found.variance),
        }

    def position_similarity(self, checkpoint: str = "", patch: int | None = None) -> dict:
        """The cosine of the position embeddings of the patches, at the checkpoint's own input size.

        Args:
            checkpoint: a name that `checkpoints` lists; empty for the first one
            patch: a patch's number from 0, row by row, for its similarities alone; none for all patches

        Returns:
            {checkpoint, similarity: rows x cols x rows x cols, or rows x cols of the one patch, from -1 to 1}
        """
        inspector = self._inspector(checkpoint)
        found = models.position_similarity(inspector)
        if patch is not None:
            rows, cols = found.shape[:2]
            found = found[divmod(whole(patch, "patch", 0, rows * cols - 1), cols)]
        return {"checkpoint": inspector.checkpoint.name, "similarity": plain(found)}

    def checkpoints(self) -> list:
        """The checkpoints that can be asked for, those on this server first.

        Returns:
            a list of {name, architecture, source, input_size: [channels, height, width], trained_on, licence,
            paper, note, on_disk}
        """
        from vitviz import engine

        found = engine.checkpoints(self._studio.settings.weights)
        known = {checkpoint.name: checkpoint for checkpoint in found}
        fields = "name architecture source input_size trained_on licence paper note on_disk".split()
        return [  # not where it lies
            {field: getattr(known[name], field) for field in fields}
            for name in self._studio.names()
            if name in known
        ]
