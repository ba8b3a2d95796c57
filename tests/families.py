"""Table of supported views by model family, made by running every architecture, for docs/families.md.

    python -m tests.families                 # all of timm's plain architectures, some minutes
    python -m tests.families vit_base        # names with this prefix, without writing the file
    python -m tests.families --parameters    # parameter counts only, into vitviz/engine/hub/parameters.json

Each architecture is built with perturbed random weights (zero biases would hide faults). It has two blocks
if the depth can be set, otherwise its full depth. It is traced with the truth check enabled, and every view
is drawn or gives the reason why not.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from pathlib import Path

import numpy as np
import timm
import torch

import vitviz
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.formats.naflex import to_plain_vit
from vitviz.engine.images.preprocess import Preprocessing
from vitviz.engine.inspector import Inspector
from vitviz.engine.studies.text import reads_text
from vitviz.errors import UnsupportedModel
from vitviz.views import VIEWS, Needs, ViewContext
from vitviz.views.routes import parse_settings

OF_ONE = [view for view in VIEWS if view.needs is not Needs.SET]  # a set would need twenty passes each

FAMILIES = [  # the first matching pattern names the family
    ("NaFlex ViT", r"^naflexvit"),
    ("ResNet hybrid", r"_r\d*_s\d+|resnet"),
    ("DeiT", r"^deit_"),
    ("DeiT-III", r"^deit3_"),
    ("BEiT, BEiT v2, BEiT-3", r"^beit"),
    ("EVA, EVA-02", r"^eva"),
    ("DINOv2", r"dinov2"),
    ("DINOv3", r"dinov3"),
    ("SigLIP", r"siglip|so150m|so400m_patch1[46]_(?!reg1_tips|radio)"),
    ("CLIP", r"clip|_mci_"),
    ("Relative position", r"relpos"),
    ("RoPE-ViT", r"_rope"),
    ("FlexiViT", r"flexivit"),
    ("AIMv2", r"aimv2"),
    ("Perception Encoder", r"_pe_"),
    ("TIPSv2", r"tips"),
    ("RADIO", r"radio"),
    ("Sapiens 2", r"sapiens"),
    ("LingBot", r"lingbot"),
    ("InternViT", r"intern"),
    ("ViT with registers, average pooling", r"_gap_|_reg\d"),
    ("ViT", r""),
]
EVIDENCE = "Attribution"  # drawn only if the attribution of a direction sums up, too
TEXT = "With text"  # the attribution of a sentence's cosine
# exceptions that architectures raise for an option that they do not accept
REFUSALS = (TypeError, ValueError, RuntimeError, AssertionError, NotImplementedError)
LARGEST = 4e9  # bytes of weights
HEAD = """# Families and views

Made by `python -m tests.families`, which runs every architecture with perturbed random weights, cut to two
layers where that can be set. Attribution is listed where the contributions add up to the logit. Attribution,
Perturbations and Faithfulness need a classifier, which {headless} of these architectures lack; their
attribution is one of directions in the model's output (in Python), and adds up too. With text: a text tower
is known for one of the family's checkpoints; with sentences as classes ([text.md](text.md)) the contributions
add up, and Perturbations, Attribution and Faithfulness are available.
"""


def family(architecture: str) -> str:
    return next(name for name, pattern in FAMILIES if re.search(pattern, architecture))


def built(architecture: str, smaller: tuple[int, int] | None = None) -> torch.nn.Module:
    """Build the architecture with depth 2 if that can be set, with all parameters perturbed.

    The input size is the architecture's own, or `smaller`.
    """
    torch.manual_seed(0)
    config = timm.get_pretrained_cfg(architecture)
    size = (
        {"img_size": smaller or config.input_size[1:]}
        if config and not config.fixed_input_size and config.input_size
        else {}
    )
    for options in ({"depth": 2, **size}, {"depth": 2}, size, {}):
        try:
            with torch.device("meta"):
                weight = (
                    sum(
                        p.numel()
                        for p in timm.create_model(architecture, pretrained=False, **options).parameters()
                    )
                    * 4
                )
        except REFUSALS:
            continue  # try with fewer options
        if weight > LARGEST:
            raise MemoryError(f"{weight / 1e9:.1f} GB of weights")
        model = timm.create_model(architecture, pretrained=False, **options).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
        return to_plain_vit(
            model, config.input_size[1:] if config and config.input_size else (224, 224), architecture
        )
    raise RuntimeError(f"{architecture} cannot be built")


def looked_into(architecture: str, smaller: tuple[int, int] | None = None) -> dict[str, str]:
    """Return 'drawn' or the reason for every view; raise the error that a user sees for a rejected model."""
    model = built(architecture, smaller)
    size = tuple(model.patch_embed.img_size)
    inspector = Inspector(
        Loaded(
            Checkpoint(architecture, architecture, "local", ""),
            model,
            Preprocessing(size, (0.5,) * 3, (0.5,) * 3),
        ),
        "cpu",
    )
    trace = inspector.trace(np.random.default_rng(0).integers(0, 255, (300, 260, 3), dtype=np.uint8))
    subject, found = ViewContext(inspector, trace), {}
    for view in OF_ONE:
        reason = view.unsupported(subject)
        if reason is None:
            view.summary(subject)
            if view.scope.on_request:  # hundreds of passes; tests/engine covers every construction
                found[view.title] = "drawn"
                continue
            for name, array in view.numbers(subject, parse_settings(view, {}, subject.about)).items():
                if array.dtype.kind == "f" and not name.startswith("norm_after"):
                    assert np.isfinite(array).all(), f"{view.slug}: {name} is not finite"
        found[view.title] = reason or "drawn"
    found[EVIDENCE], found[TEXT] = accounted(inspector, trace), worded(inspector, trace)
    return found


def accounted(inspector: Inspector, trace: vitviz.Trace) -> str:
    """Return 'drawn' if the attribution of a logit sums up, otherwise the reason.

    Raises:
        AssertionError: If the attribution of a direction does not sum up.
    """
    name = inspector.checkpoint.name
    try:
        direction = torch.randn(
            inspector.tail(trace.grid.pixels).features, generator=torch.Generator().manual_seed(0)
        )
        account, own = (
            vitviz.logit_attribution(inspector, trace, direction),
            inspector.readout(trace) * direction,
        )
        assert abs(own.sum().item() - account.total) <= 1e-4 * own.abs().max().item(), (
            f"{name}: {account.total} of {own.sum().item()}"
        )
    except UnsupportedModel as reason:
        return str(reason)
    if trace.logits is None:
        return (
            f"{name} has no classifier: its account is one of directions in what it hands on, not of classes"
        )
    return "drawn"


def worded(inspector: Inspector, trace: vitviz.Trace) -> str:
    """Return 'drawn' if sentences can be classes and the attribution of a pair sums up, else the reason."""
    name = inspector.checkpoint.name
    if not any(reads_text(one) for one in vitviz.checkpoints() if one.architecture == name):
        return f"{name} has no text tower that is known"
    width = inspector.model.num_classes or inspector.tail(trace.grid.pixels).features
    vectors = torch.randn(2, width, generator=torch.Generator().manual_seed(0))
    try:
        asked = inspector.with_classes(vitviz.Classes(["one", "another"], vectors))
        account = vitviz.logit_attribution(asked, trace, ("one", "another"))
    except UnsupportedModel as reason:
        return str(reason)
    assert abs(account.gap) <= 1e-4 * asked.answered(trace).logits.abs().max().item(), (name, account.gap)
    return "drawn"


def table(results: dict[str, dict[str, str] | str]) -> str:
    """Return a Markdown table: one row per family, with the number of architectures that draw each view."""
    titles = list(dict.fromkeys([*(view.title for view in OF_ONE), EVIDENCE, TEXT]))
    lines = [f"| Family | Architectures | {' | '.join(titles)} |", "|---|---|" + "---|" * len(titles)]
    for name, _ in FAMILIES:
        members = [seen for one, seen in results.items() if family(one) == name]
        drawn = [seen for seen in members if isinstance(seen, dict)]
        if not members:
            continue
        cells = []
        for title in titles:
            count = sum(seen.get(title) == "drawn" for seen in drawn)
            cells.append(
                "yes"
                if drawn and count == len(drawn)
                else "not applicable"
                if count == 0
                else f"{count} of {len(drawn)}"
            )
        lines.append(f"| {name} | {len(drawn)} of {len(members)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def refusals(results: dict[str, dict[str, str] | str]) -> str:
    """Return a Markdown list of the architectures that are not shown, with the reasons."""
    return "".join(f"- `{one}`: {seen}\n" for one, seen in results.items() if isinstance(seen, str))


def count_parameters(architectures: list[str]) -> None:
    counted = {}
    for architecture in architectures:
        with torch.device("meta"):
            counted[architecture] = sum(
                parameter.numel()
                for parameter in timm.create_model(architecture, pretrained=False).parameters()
            )
    path = Path(vitviz.__file__).parent / "engine" / "hub" / "parameters.json"
    path.write_text(json.dumps(counted, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    torch.set_num_threads(1)
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted == "--parameters":
        return count_parameters(
            sorted({one.architecture for one in vitviz.checkpoints() if one.source == "hub"})
        )
    architectures = sorted(
        {
            one.architecture
            for one in vitviz.checkpoints()
            if one.source == "hub" and one.architecture.startswith(wanted)
        }
    )
    results: dict[str, dict[str, str] | str] = {}
    for architecture in architectures:
        try:
            results[architecture] = looked_into(architecture)
        except (UnsupportedModel, MemoryError) as error:
            results[architecture] = str(error)
        except Exception as error:  # noqa: BLE001, a fault is recorded and must not end the run
            results[architecture] = f"FAULT {type(error).__name__}: {error}"
        print(
            architecture,
            results[architecture] if isinstance(results[architecture], str) else "fine",
            flush=True,
        )
        gc.collect()
    if wanted:
        print(table(results), refusals(results), sep="\n")
    else:
        write(results)


def write(results: dict[str, dict[str, str] | str], root: Path = Path(__file__).parents[1]) -> None:
    """Write the table and the rejected architectures into docs/families.md."""
    headless = sum("no classifier" in seen[EVIDENCE] for seen in results.values() if isinstance(seen, dict))
    text = f"{HEAD.format(headless=headless)}\n{table(results)}\nNot shown, and why:\n\n{refusals(results)}"
    (root / "docs" / "families.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
