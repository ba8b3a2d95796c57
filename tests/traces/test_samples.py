"""The sample photographs: the pictures that scikit-image means, with the credits that it gives, and no
download.
"""

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
def test_samples_are_scikit_images_own(sample):
    picture = sample_image(sample.name)
    assert (picture.mode, picture.size) == ("RGB", SIZES[sample.name])
    assert np.array_equal(np.asarray(picture), getattr(skimage.data, sample.name)())


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_credits_are_those_of_scikit_images_documentation(sample):
    documentation = " ".join(getattr(skimage.data, sample.name).__doc__.split())
    for word in sample.credit.replace("courtesy of ", "").split(", "):
        assert word in documentation, word


def test_samples_need_no_network(monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *args: pytest.fail("connected"))
    assert all(sample_image(sample.name).width > 400 for sample in samples())


def test_the_page_features_a_sample_that_the_shipped_model_names_right_and_a_known_mistake():
    model, wrong = vitviz.load("vitviz-tiny", device="cpu"), set()
    for sample in samples():
        trace = model.trace(sample_image(sample.name))
        fitting = sample.truth(trace.labels)
        if fitting and trace.prediction not in fitting:
            wrong.add(sample.name)
        if sample.name == FEATURED[0]:
            assert trace.logits.softmax(-1)[fitting].sum() >= 0.6
    assert wrong == {sample.name for sample in samples() if "vitviz-tiny" in sample.mistaken_by}
    assert FEATURED[0] not in wrong and FEATURED[1] in wrong


def test_an_unknown_sample_is_named():
    with pytest.raises(
        ImageError, match="no sample 'dog': expected one of chelsea, coffee, astronaut, rocket"
    ):
        sample_image("dog")


@pytest.mark.processes
def test_naming_the_samples_imports_no_picture_library():
    code = (
        "import sys, vitviz.traces.samples as s; s.samples();"
        " print([m for m in ('PIL', 'skimage', 'numpy', 'torch') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
