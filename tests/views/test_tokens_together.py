"""A second photograph, and one basis for several: each against the analysis of the traces themselves."""

import numpy as np
import pytest

import vitviz
from vitviz.errors import Unknown, WrongSetting
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.views.routes import parse_settings
from vitviz.views.tokens import RepresentationsView

VIEW = RepresentationsView()


@pytest.fixture(scope="module")
def service():
    return AnalysisService(ServiceSettings(device="cpu"))


@pytest.fixture(scope="module")
def traces(inspector):
    return {name: inspector.trace(vitviz.sample_image(name)) for name in ("coffee", "chelsea")}


@pytest.fixture(scope="module")
def keys(service):
    return {
        name: service.look(service.pictures.sample(name), "vitviz-tiny") for name in ("coffee", "chelsea")
    }


def item(service, key, name, **given):
    return service.item(key, "tokens", name, {one: str(value) for one, value in given.items()})


@pytest.mark.parametrize(("norm", "mean"), [("raw", "out"), ("final", "in")])
def test_patch_of_second_image_is_compared_with_every_patch(service, keys, traces, inspector, norm, mean):
    asked = {"depth": 6, "norm": norm, "mean": mean, "other": "chelsea"}
    through = inspector if norm == "final" else None
    across = item(service, keys["coffee"], "across", **asked)
    for patch in (0, 77, 195):
        expected = vitviz.token_similarity(
            traces["coffee"], 6, patch, mean == "out", through, of=traces["chelsea"]
        ).numpy()
        found = item(service, keys["coffee"], "facing", **asked, partner=patch)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        np.testing.assert_allclose(across[:, patch], expected.ravel(), atol=1e-3)
    back = item(service, keys["chelsea"], "across", **{**asked, "other": "coffee"})
    np.testing.assert_allclose(back, across.T, atol=1e-3)
    photo = item(service, keys["coffee"], "photo", other="chelsea")
    assert (photo == traces["chelsea"].view.picture).all()


def test_second_image_can_be_an_upload_and_unknown_keys_raise(service, keys, traces, tmp_path):
    vitviz.sample_image("chelsea").save(path := tmp_path / "mine.png")
    own = service.pictures.keep_bytes(path.read_bytes())
    found = item(service, keys["coffee"], "facing", other=own, partner=9, depth=6)
    np.testing.assert_allclose(
        found, item(service, keys["coffee"], "facing", other="chelsea", partner=9, depth=6)
    )
    with pytest.raises(Unknown, match="no longer has this image"):
        item(service, keys["coffee"], "facing", other="0" * 40)
    with pytest.raises(WrongSetting):
        item(service, keys["coffee"], "facing", other="../etc")
    assert np.isnan(item(service, keys["coffee"], "facing")).all(), "none has been chosen"


def test_two_images_share_one_basis(service, keys, traces):
    both = vitviz.token_components([traces["coffee"], traces["chelsea"]], 6)
    for i, (name, other) in enumerate((("coffee", "chelsea"), ("chelsea", "coffee"))):
        asked = {"basis": "photo", "other": other}
        found = item(service, keys[name], "components", depth=6, **asked)
        np.testing.assert_allclose(found, both.scores[i], atol=2e-4)
        np.testing.assert_allclose(item(service, keys[name], "shares", **asked)[6], both.shares, atol=1e-5)
    alone = item(service, keys["coffee"], "components", depth=6)
    assert np.abs(alone - both.scores[0].numpy()).max() > 0.1


def test_two_checkpoints_share_one_basis_where_their_widths_agree(service, keys, traces):
    early = vitviz.load("vitviz-tiny@300", device="cpu").trace(vitviz.sample_image("coffee"))
    beside = service.look(service.pictures.sample("coffee"), "vitviz-tiny@300")
    both = vitviz.token_components([traces["coffee"], early], 5)
    for i, key in enumerate(
        (service.runs.pair(keys["coffee"], beside), service.runs.pair(beside, keys["coffee"]))
    ):
        found = item(service, key, "components", depth=5, basis="beside")
        np.testing.assert_allclose(found, both.scores[i], atol=2e-4)


def test_shared_basis_colours_do_not_depend_on_image_order(service, keys, tmp_path):
    """The same picture twice is the same colours twice, whoever comes first."""
    again = service.pictures.keep_bytes(service.image(keys["coffee"], "upload"))
    copy = service.look(again, "vitviz-tiny")
    one = item(service, keys["coffee"], "tints", basis="photo", other=again).astype(int)
    other = item(service, copy, "tints", basis="photo", other="coffee").astype(int)
    assert np.abs(one - other).mean() < 12  # a JPEG apart


@pytest.mark.sweep
def test_training_steps_share_one_basis_without_flips(service, keys):
    names = [one.name for one in service.checkpoints.moments("vitviz-tiny")]
    steps = [service.look(service.pictures.sample("coffee"), name) for name in names]
    all_of_them = [service.subject(step).trace for step in steps]
    both = vitviz.token_components(all_of_them, 6)
    for place in (3, len(names) - 1):
        found = item(service, steps[place], "components", depth=6, basis="film")
        np.testing.assert_allclose(found, both.scores[place], atol=2e-4)

    def jumps(basis):
        shown = [item(service, step, "tints", basis=basis)[8].astype(float) for step in steps[4:]]
        return np.abs(np.diff(shown, axis=0)).mean()

    assert 1 < jumps("film") < 0.8 * jumps("own"), "neighbouring frames are as alike as their tokens are"


def test_missing_partner_of_basis_raises(service, keys, tmp_path):
    for basis, said in (("beside", "no second checkpoint"), ("photo", "no second image")):
        with pytest.raises(WrongSetting, match=said):
            item(service, keys["coffee"], "tints", basis=basis)


def test_checkpoints_of_other_width_share_no_basis(service, keys, tmp_path):
    from tests.engine.small_models import small_vit
    from tests.views.helpers import of_model
    from vitviz.views import ViewContext

    other = of_model(small_vit())
    subject = service.subject(keys["coffee"])
    beside = ViewContext(other, other.trace(vitviz.sample_image("coffee")))
    pair = ViewContext(subject.inspector, subject.trace, beside=beside)
    with pytest.raises(WrongSetting, match="A common basis needs the same depth and width"):
        VIEW.item(pair, "tints", parse_settings(VIEW, {"basis": "beside"}, pair.about))
    with pytest.raises(WrongSetting, match="no stored training steps"):
        VIEW.item(pair, "tints", parse_settings(VIEW, {"basis": "film"}, pair.about))


def test_export_and_endpoint_use_shared_basis(service, keys, inspector, traces):
    import io

    given = {"show": "similarity", "other": "chelsea", "partner": "77", "depth": "6"}
    with np.load(io.BytesIO(service.numbers(keys["coffee"], "tokens", given))) as file:
        expected = vitviz.token_similarity(traces["coffee"], 6, 77, True, of=traces["chelsea"])
        np.testing.assert_allclose(file["facing"], expected, atol=1e-5)
    with np.load(io.BytesIO(service.numbers(keys["coffee"], "tokens", {"show": "similarity"}))) as file:
        assert "facing" not in file.files
    figure = vitviz.figure(
        "tokens", inspector, traces["coffee"], show="components", basis="photo", other="chelsea"
    )
    assert figure.spec.rows[0][0].pixels.shape == (14, 14, 3)
