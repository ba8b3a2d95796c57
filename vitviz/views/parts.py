"""Optional parts of a view's declaration: what it applies to, and defaults of its exports and videos.

A view holds one value of each part and states only what differs from the defaults. Hooks are plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitviz.views.controls import Control, ModelShape
    from vitviz.views.subject import Settings, ViewContext

FrameSettings = tuple[tuple[str, dict[str, Any]], ...]  # each frame's label and settings


@dataclass(frozen=True)
class Scope:
    """Runs that a view applies to, and what it offers for one of them.

    Attributes:
        every_patch: True if the view is not applicable once patches were dropped.
        float32_only: True if the view starts from gradients: those of a rounded model belong to a different
            function.
        needs_no_pass: True if the figure needs no forward pass and is shown while one runs.
        on_request: True for an expensive view, computed only when a visitor requests the numbers.
        available: For an `on_request` view, `available(subject, settings)` is True if its numbers are cached.
        averages: True if the view can also be drawn for a survey, as the mean over images.
        set_control: The choice that selects the protocol for a set of images, if any.
        most_images: Most images of a set on the page.
        paired: True if a figure also covers the second checkpoint, if there is one.
        sided: True if a figure of one image can also use the second checkpoint.
        offered: `offered(controls, subject)` are the controls to offer for this subject; all by default.
    """

    every_patch: bool = False
    float32_only: bool = False
    needs_no_pass: bool = False
    on_request: bool = False
    available: Callable[[ViewContext, Settings], bool] = lambda subject, settings: True
    averages: bool = False
    set_control: str = ""
    most_images: int = 1_000
    paired: bool = False
    sided: bool = False
    offered: Callable[[tuple[Control, ...], ViewContext], tuple[Control, ...]] = lambda controls, _: controls


@dataclass(frozen=True)
class File:
    """Download besides the numbers.

    Attributes:
        name: File name, also used in the route.
        label: Label on the page.
        kind: Media type.
        make: `make(view, subject, settings, upload)` returns the bytes; `upload` is the upright image in RGB,
            if there is one. None for a file that the server makes.
    """

    name: str
    label: str
    kind: str = "application/octet-stream"
    make: Callable[[Any, ViewContext, Settings, Any], bytes] | None = None


@dataclass(frozen=True)
class VideoDefaults:
    """Defaults of a view's videos.

    Attributes:
        settings: Settings unless given; they keep everything but the content fixed between frames.
        frames: `frames(settings, about)` are label and settings of each frame of the video over the layers,
            () if none changes. None varies the control of `vitviz.views.printing.GROWS` of a shared map.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    frames: Callable[[Settings, ModelShape], FrameSettings] | None = None


@dataclass(frozen=True)
class ExportDefaults:
    """Defaults of a view's exports: numbers, files, endpoint, figure, standalone page and videos.

    Attributes:
        arrays: Axes of the arrays in `numbers` besides the items, by name.
        files: Downloads besides the numbers.
        endpoint: Name of an endpoint for programs; None for one derived from settings and items.
        unprinted: Reason why there is no figure for print; empty if there is one.
        skipped: `skipped(subject)` names the items that the view's script does not request.
        values: `values(subject, name)` are the values of an unbounded setting in a standalone page.
        video: Defaults of the videos.
    """

    arrays: Mapping[str, str] = field(default_factory=dict)
    files: tuple[File, ...] = ()
    endpoint: str | None = None
    unprinted: str = ""
    skipped: Callable[[ViewContext], Collection[str]] = lambda subject: ()
    values: Callable[[ViewContext, str], tuple[str, ...]] = lambda subject, name: ()
    video: VideoDefaults = VideoDefaults()
