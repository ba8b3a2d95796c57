"""Known results of genuine DeiT-Tiny weights on an image of a cat."""

import numpy as np
import pytest
import torch

import vitviz
from tests.shared import shared_file


@pytest.fixture(scope="module")
def inspector():
    return vitviz.load(
        shared_file("weights/deit_tiny_patch16_224.safetensors"),
        architecture="deit_tiny_patch16_224",
        device="cpu",
    )


@pytest.fixture(scope="module")
def trace(inspector):
    return inspector.trace(vitviz.sample_image("chelsea"))


def test_prediction_is_cat(trace):
    probabilities, classes = torch.softmax(trace.logits, -1).topk(3)
    assert classes.tolist() == [285, 281, 282]
    assert probabilities.tolist() == pytest.approx([0.439, 0.227, 0.187], abs=0.002)
    assert [label.split(",")[0] for label, _ in trace.top(3)] == ["Egyptian cat", "tabby", "tiger cat"]


@pytest.mark.parametrize(
    "layer, expected", [(0, [55.9, 109.1, 50.6]), (2, [20.7, 23.8, 78.0]), (11, [106.9, 110.2, 117.6])]
)
def test_attention_distance_has_known_values(trace, layer, expected):
    assert vitviz.attention_distance(trace)[layer].tolist() == pytest.approx(expected, abs=0.1)


def test_dog_and_cat_are_in_top_three(inspector):
    trace = inspector.trace(shared_file("data/both.png"))
    classes = trace.logits.topk(3).indices.tolist()
    assert classes[0] == 243 and classes[2] == 282


def test_rollout_equals_full_matrix_product(trace):
    product = torch.eye(197, dtype=torch.float64)
    for layer in range(12):
        fused = trace.attention(layer).double().mean(0)
        mixed = (fused + torch.eye(197)) / 2
        product = (mixed / mixed.sum(dim=-1, keepdim=True)) @ product
    expected = product[0, 1:].reshape(14, 14)
    np.testing.assert_allclose(vitviz.rollout(trace).numpy(), expected.numpy(), rtol=1e-4, atol=1e-8)


def test_position_similarity_is_high_in_own_row_and_column(inspector):
    similarity = vitviz.position_similarity(inspector)
    assert similarity.shape == (14, 14, 14, 14)
    here = similarity[7, 7]
    assert here.flatten().topk(5).indices.tolist()[0] == 7 * 14 + 7
    assert here[7].mean() > here.mean() and here[:, 7].mean() > here.mean()


def test_survey_is_mean_of_its_images(inspector):
    images = [vitviz.sample_image(name) for name in ("chelsea", "coffee", "astronaut")]
    reports = []
    survey = vitviz.survey(
        images, inspector, batch=2, progress=lambda done, total: reports.append((done, total))
    )
    expected = torch.stack([vitviz.attention_distance(inspector.trace(image)) for image in images]).mean(0)
    torch.testing.assert_close(survey.distances.distance, expected, atol=1e-3, rtol=1e-5)
    assert reports == [(2, 3), (3, 3)] and survey.images == 3
    stopped = vitviz.survey(images, inspector, batch=1, progress=lambda done, total: done < 2)
    assert stopped.images == 2


def test_survey_reports_bad_image_and_continues(inspector):
    survey = vitviz.survey(
        [vitviz.sample_image("coffee"), b"no picture", vitviz.sample_image("chelsea")], inspector
    )
    assert survey.images == 2
    assert len(survey.skipped) == 1 and str(survey.skipped[0]).startswith("Picture 2:")
    last = vitviz.survey(
        [vitviz.sample_image("coffee"), b"no picture"], inspector, batch=1
    )  # after the last complete batch
    assert last.images == 1 and [str(text)[:10] for text in last.skipped] == ["Picture 2:"]
