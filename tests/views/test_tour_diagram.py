"""Tour diagram: blocks that the checkpoint has, with the numbers of its trace and modules."""

import pytest

from tests.engine.random_inspectors import perturbed
from tests.engine.small_models import small_vit
from tests.views.helpers import NAMES, TOUR, subject


def drawn(of) -> dict[str, tuple[str, str, bool]]:
    """What is written on each block, filled in; the last of a step that has two."""
    found = TOUR.summary(of)["diagram"]
    assert list(dict.fromkeys(block["step"] for block in found["blocks"])) == NAMES
    return {
        block["step"]: (
            *(block[part].format(**found["values"]) for part in ("name", "size")),
            block["there"],
        )
        for block in found["blocks"]
    }


def test_diagram_numbers_match_trace_of_plain_model():
    of = subject(small_vit())
    trace, model, blocks = of.trace, of.inspector.model, drawn(of)
    tokens, width = trace.tokens[0].shape
    heads, _, dim = trace.layers[0].q.shape
    height, across, _ = trace.view.picture.shape
    inner = model.blocks[0].mlp.fc1.out_features
    assert blocks["picture"] == ("Image", f"{height} × {across} × 3", True)
    assert blocks["patches"] == ("Patches", "4 × 4 of 8 × 8", True)
    assert blocks["flatten"] == ("Flattened", f"{tokens - 1} × 192", True)
    assert blocks["embedding"] == ("Linear embedding E", f"192 → {width}", True)
    assert blocks["token"] == (f"{tokens} tokens", "", True)
    assert blocks["positions"] == ("+ positions", f"{model.pos_embed.shape[1]} × {width}", True)
    assert blocks["attention"] == ("Attention", f"{heads} heads × {dim}", True)
    assert blocks["layers"] == ("Encoder", f"× {len(trace.layers)}", True)
    assert blocks["readout"] == ("y: class token", f"{width} → {trace.logits.numel()}", True)
    assert blocks["probabilities"] == ("Softmax", f"{trace.logits.numel()}", True)
    assert blocks["sum"] == (f"{heads * len(trace.layers)} terms", "", True)
    diagram = TOUR.summary(of)["diagram"]
    mlp = diagram["blocks"][7]
    assert (
        mlp["step"] == "layers" and mlp["size"].format(**diagram["values"]) == f"{width} → {inner} → {width}"
    )
    assert (diagram["front"], diagram["tokens"]) == ([["class", 1]], tokens)
    assert diagram["plain"] and not diagram["norm"]


@pytest.mark.parametrize(
    ("name", "changes", "front", "read"),
    [
        (
            "deit_tiny_distilled_patch16_224",
            {},
            [["class", 1], ["distillation", 1]],
            "y: class, distillation",
        ),
        ("vit_small_patch14_reg4_dinov2", {}, [["class", 1], ["register", 4]], "y: class token"),
        ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}, [], "y: mean of the patches"),
        ("vit_tiny_patch16_224", {"global_pool": "avg"}, [["class", 1]], "y: mean of the patches"),
        ("vit_tiny_patch16_224", {"global_pool": "map"}, [["class", 1]], "y: attention pooling"),
    ],
)
def test_diagram_shows_sequence_and_readout_of_model(name, changes, front, read):
    of = subject(small_vit(name, **changes))
    diagram, blocks = TOUR.summary(of)["diagram"], drawn(of)
    before = sum(count for _, count in front)
    assert diagram["front"] == front and diagram["tokens"] == 16 + before == of.trace.grid.tokens
    assert blocks["readout"][0] == read
    tokens = f"{16 + before} tokens"
    assert blocks["token"] == ((tokens, "", True) if front else ("No class token", tokens, False))


def test_diagram_without_classifier_ends_at_y():
    blocks = drawn(subject(perturbed("vit_base_patch16_siglip_224", depth=1, img_size=32)))
    assert blocks["readout"] == ("y: attention pooling", "768", True)
    assert blocks["probabilities"] == ("No classifier", "", False)
    assert blocks["sum"] == ("No terms", "", False) and not blocks["without"][2]


def test_what_stands_elsewhere_than_in_the_papers_figure_is_drawn_there():
    hybrid = drawn(subject(perturbed("vit_tiny_r_s16_p8_224")))
    assert hybrid["patches"][0] == "Convolutions" and hybrid["flatten"] == ("Flattened", "", False)
    rotary = drawn(subject(perturbed("vit_small_patch16_dinov3", depth=1, img_size=32)))
    assert rotary["positions"] == ("No E_pos", "", False) and rotary["attention"][1].endswith(", rotary")
    relative = drawn(subject(perturbed("vit_relpos_small_patch16_224", depth=1)))
    assert relative["attention"][1].endswith(", relative") and not relative["positions"][2]
    clip = TOUR.summary(subject(perturbed("vit_base_patch32_clip_224", depth=1)))["diagram"]
    assert clip["norm"] and clip["plain"]
    after = TOUR.summary(subject(small_vit("vit_relpos_base_patch16_rpn_224", patch_size=8)))["diagram"]
    assert not after["plain"]
