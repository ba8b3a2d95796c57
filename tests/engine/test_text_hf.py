"""Text classes against transformers' own CLIP and SigLIP."""

import open_clip
import pytest
import torch

import vitviz
from tests.engine import contrastive_hf
from vitviz.engine.forward.shuffling import input_from_view

SENTENCES = ["a cat", "a photo of the dog", "the"]


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_embeddings_cosines_and_probabilities_equal_transformers(kind, tmp_path):
    model = getattr(contrastive_hf, kind)(tmp_path)
    inspector = vitviz.load(tmp_path, device="cpu")
    classes = vitviz.text(inspector, SENTENCES)
    trace = inspector.with_classes(classes).trace(vitviz.sample_image("chelsea"))
    pixels = input_from_view(trace.view, inspector.preprocessing).tensor[None]
    tokens = open_clip.get_tokenizer(f"local-dir:{tmp_path}")(SENTENCES)
    with torch.no_grad():
        expected_outputs = model(input_ids=tokens, pixel_values=pixels)
    tolerance = {"atol": 1e-5, "rtol": 0, "check_dtype": False}
    identity_inspector = inspector.with_classes(
        vitviz.Classes(
            range(len(expected_outputs.image_embeds[0])),
            torch.eye(len(expected_outputs.image_embeds[0])),
            scale=1,
        )
    )
    torch.testing.assert_close(
        identity_inspector.answered(trace).logits, expected_outputs.image_embeds[0], **tolerance
    )
    torch.testing.assert_close(classes.vectors, expected_outputs.text_embeds, **tolerance)
    cosines = (trace.logits - classes.bias) / classes.scale
    torch.testing.assert_close(
        cosines, (expected_outputs.image_embeds @ expected_outputs.text_embeds.T)[0], **tolerance
    )
    logits = expected_outputs.logits_per_image[0]
    torch.testing.assert_close(trace.logits, logits, **{**tolerance, "atol": 1e-4})
    expected = logits.softmax(dim=0) if kind == "clip" else logits.sigmoid()
    torch.testing.assert_close(trace.probabilities(), expected, **tolerance)
