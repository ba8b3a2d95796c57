"""The endpoints that give a view's figure for print, and its film.

Type hints and docstrings become Gradio's documentation, so hints are real objects here and not strings: this
file does without `from __future__ import annotations`.
"""

import base64
from typing import Literal

from vitviz.errors import WrongSetting
from vitviz.ui.serving import films, prints
from vitviz.ui.serving.derived import Picture
from vitviz.ui.serving.endpoints.asking import Asking
from vitviz.ui.serving.plain import truth, whole


class OfPrints(Asking):
    """Files rather than numbers."""

    def figure(
        self,
        image: Picture,
        view: str = "rollout",
        checkpoint: str = "",
        settings: str = "",
        format: Literal["svg", "pdf", "png"] = "svg",
        width: int | None = None,
        dpi: Literal[150, 300, 600] = 300,
        detail: bool = False,
        language: Literal["en", "zh-CN", "ko"] = "en",
        without: str = "",
        second: str = "",
    ) -> dict:
        """A view's figure for print: vector, or pixels at a width, the same from any window.

        Args:
            image: a file (handle_file), or the name of a sample such as "chelsea"
            view: by its name in links, such as patches, explorer, rollout or compared; any but tour
            checkpoint: a name that `checkpoints` lists; empty for the first one
            settings: the view's, by the names in the page's links, such as "fusion=max discard=0.9"
            format: svg, pdf or png
            width: mm, from 40 to 400; none for as wide as it needs
            dpi: of a png: 150, 300 or 600
            detail: with what stands beside the figure
            language: en, zh-CN or ko
            without: what is taken away, such as heads=8.2 patches=0.17; empty for nothing
            second: the checkpoint beside it, for what is of two; empty for none

        Returns:
            {checkpoint, view, name: the file's, caption: text, data: the file in base64}
        """
        key = self._key(image, checkpoint, without)
        if beside := str(second).strip():
            asked = self._studio.view(str(view))
            if not (asked.paired or asked.sided):
                raise WrongSetting(f"{asked.title} is of one checkpoint; leave second empty.")
            key = self._studio.pair(key, self._key(image, beside, without))
        given, whether = prints.settings_of(str(settings)), truth(detail, "detail")
        made = prints.figure(self._studio, key, str(view), given, whether, language=str(language))
        data = made.file(str(format), width, whole(dpi, "dpi", 1, 10_000))
        return self._told(key, view, f"{made.name}.{format}", made.caption, data)

    def film(
        self,
        image: Picture,
        view: str = "rollout",
        checkpoint: str = "",
        settings: str = "",
        over: Literal["training", "layers"] = "training",
        format: Literal["mp4", "gif"] = "mp4",
        width: int = 960,
        seconds: float = 0.8,
        detail: bool = False,
        language: Literal["en", "zh-CN", "ko"] = "en",
        without: str = "",
    ) -> dict:
        """A view's figure as a film: over a training, or growing over the layers, under one scale.

        Args:
            image: a file (handle_file), or the name of a sample such as "chelsea"
            view: by its name in links, such as patches, explorer, rollout or compared; any but tour
            checkpoint: a name that `checkpoints` lists; empty for the first one
            settings: the view's, by the names in the page's links, such as "fusion=max discard=0.9"
            over: training, where snapshots were kept; layers for rollout, evidence, tokens or explorer
            format: mp4 or gif
            width: pixels, even, from 320 to 1280
            seconds: for each frame, 0.1 to 5; the last stands three times as long
            detail: with what stands beside the figure
            language: en, zh-CN or ko
            without: what is taken away, such as heads=8.2 patches=0.17; empty for nothing

        Returns:
            {checkpoint, view, name: the file's, caption: text, frames: their labels, data: in base64}
        """
        pixels = whole(width, "width", 1, films.WIDE)
        films.require(str(format), pixels, seconds)
        key = self._key(image, checkpoint, without)
        given, whether = prints.settings_of(str(settings)), truth(detail, "detail")
        made = films.film(self._studio, key, str(view), given, str(over), whether, language=str(language))
        data = films.written(self._studio, made, str(format), pixels, seconds)
        told = self._told(key, view, f"{made.name}.{format}", made.caption, data)
        return {**told, "frames": [str(label) for label in made.labels]}

    def _told(self, key: str, view: str, name: str, caption: str, data: bytes) -> dict:
        """A file as it travels."""
        about = {"checkpoint": self._studio.run(key).checkpoint, "view": str(view), "name": name}
        return {**about, "caption": caption, "data": base64.b64encode(data).decode("ascii")}
