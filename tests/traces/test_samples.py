"""Sample images: equal to scikit-image's data, with its credits, without a download."""

import subprocess
import sys

import numpy as np
import pytest
import skimage.data

import vitviz
from vitviz.errors import ImageError
from vitviz.traces.samples import FEATURED, sample_image, samples

SIZES = {"chelsea": (451, 300), "coffee": (600, 400), "astronaut": (512, 512), "rocket": (640, 427)}


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_samples_equal_scikit_image_data(sample):
    image = sample_image(sample.name)
    assert (image.mode, image.size) == ("RGB", SIZES[sample.name])
    assert np.array_equal(np.asarray(image), getattr(skimage.data, sample.name)())


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_credits_match_scikit_image_documentation(sample):
    documentation = " ".join(getattr(skimage.data, sample.name).__doc__.split())
    for word in sample.credit.replace("courtesy of ", "").split(", "):
        assert word in documentation, word


def test_samples_need_no_network(monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *args: pytest.fail("connected"))
    assert all(sample_image(sample.name).width > 400 for sample in samples())


def test_featured_samples_are_one_correct_and_one_mistaken():
    model, wrong = vitviz.load("vitviz-tiny", device="cpu"), set()
    for sample in samples():
        trace = model.trace(sample_image(sample.name))
        true_classes = sample.truth(trace.labels)
        if true_classes and trace.prediction not in true_classes:
            wrong.add(sample.name)
        if sample.name == FEATURED[0]:
            assert trace.logits.softmax(-1)[true_classes].sum() >= 0.6
    assert wrong == {sample.name for sample in samples() if "vitviz-tiny" in sample.mistaken_by}
    assert FEATURED[0] not in wrong and FEATURED[1] in wrong


def test_unknown_sample_raises_with_known_names():
    with pytest.raises(
        ImageError, match="no sample 'dog': expected one of chelsea, coffee, astronaut, rocket"
    ):
        sample_image("dog")


@pytest.mark.processes
def test_listing_samples_imports_no_image_library():
    code = (
        "import sys, vitviz.traces.samples as s; s.samples();"
        " print([m for m in ('PIL', 'skimage', 'numpy', 'torch') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
