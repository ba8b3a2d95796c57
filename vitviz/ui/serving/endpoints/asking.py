"""What a program's words stand for: a checkpoint's name, a picture, and what a view looks at."""

from typing import Any

from vitviz.runs import Without
from vitviz.samples import samples
from vitviz.ui.serving.studio import Studio
from vitviz.views import Subject


class Asking:
    """Finds what an endpoint is asked about, in one studio."""

    def __init__(self, studio: Studio):
        self._studio = studio

    def subject_of(
        self, image: Any, checkpoint: str, without: str = "", second: str | None = None
    ) -> Subject:
        """What a view looks at; of a checkpoint alone where no picture is given, or of one or two over those
        that come with vitviz, where `second` is given, if only as "".
        """
        if second is not None:
            names = [self._name(checkpoint), *([str(second).strip()] if str(second).strip() else [])]
            sample = self._studio.keep_sample(samples()[0].name)
            keys = [self._studio.look(sample, name) for name in names]
            return self._studio.subject(keys[0] if len(keys) == 1 else self._studio.pair(*keys))
        if image is None:
            return Subject(self._inspector(checkpoint))
        return self._subject(image, checkpoint, without)

    def _inspector(self, checkpoint: str):
        return self._studio.inspector(str(checkpoint).strip() or self._studio.settings.checkpoint)

    def _name(self, checkpoint: str) -> str:
        return str(checkpoint).strip() or self._studio.settings.checkpoint

    def _subject(self, image: Any, checkpoint: str, without: str = "") -> Subject:
        return self._studio.subject(self._key(image, checkpoint, without))

    def _key(self, image: Any, checkpoint: str, without: str = "") -> str:
        """The key of a picture as a checkpoint sees it, less what is taken away."""
        parsed = Without.parse(str(without))
        return self._studio.look(self._picture(image), self._name(checkpoint), without=parsed)

    def _picture(self, image: Any) -> str:
        """The picture's key: of a sample by its name, or of an upload. A bare path would be one on this
        server.
        """
        if isinstance(image, str):
            return self._studio.keep_sample(image)
        path = image.get("path") if isinstance(image, dict) else getattr(image, "path", None)
        return self._studio.keep_picture(path)
