"""Views in an output cell: their numbers equal the analyses."""

import base64
import html as escaping
import json
import re

import numpy as np
import pytest

import vitviz
from vitviz.errors import VitvizError
from vitviz.export.bundle import bundle_modules
from vitviz.views import VIEWS, scripts


def page_data(cell):
    """What the page carries."""
    (told,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', cell.page, re.S)
    return json.loads(told)


def array(part):
    values = np.frombuffer(base64.b64decode(part["data"]), part["dtype"])
    return values.reshape([int(one) for one in part["shape"].split(",")])


@pytest.fixture(scope="module")
def explorer(inspector, trace):
    return vitviz.show("explorer", inspector, trace, layer=3, seconds=1e9)


@pytest.mark.long
def test_cell_contains_every_layer_and_token(explorer, trace):
    parts = page_data(explorer)["parts"]
    for layer in range(len(trace.layers)):
        found = array(parts[f"cell/explorer/layer?layer={layer + 1}&difference=off"])
        np.testing.assert_array_equal(found, trace.attention(layer).numpy().astype(np.float16))
    weights = trace.attention(4)[1, 7, 1:].numpy()  # layer 5, head 2, token 7
    most = array(parts["cell/explorer/wallmax?token=7&direction=row&difference=off"])[4, 1]
    assert most == pytest.approx(weights.max(), rel=1e-6)
    wall = array(parts["cell/explorer/wall?token=7&direction=row&difference=off"])[4, 1]
    np.testing.assert_allclose(wall / 255, weights / weights.max(), atol=0.5 / 255 + 1e-6)
    assert explorer.fixed == ()


def test_settings_start_as_given(explorer):
    controls = {one["name"]: one for one in page_data(explorer)["value"]["controls"]}
    assert (controls["layer"]["default"], controls["head"]["default"]) == (3, 1)


@pytest.mark.long
def test_cell_contains_rollout_for_live_settings(inspector, trace, image):
    cell = vitviz.show(
        "rollout", inspector, trace, image=image, live=["fusion", "discard"], residual=0.25, layers=(2, 5)
    )
    parts = page_data(cell)["parts"]
    for fusion, discard in (("mean", 0), ("max", 0.9), ("min", 0.35)):
        expected = vitviz.rollout(trace, "auto", fusion, discard, 0.25, (1, 4)).numpy()
        asked = f"query=auto&fusion={fusion}&discard={discard}&residual=0.25&layers=2-5"
        key = f"cell/rollout/map?{asked}&difference=off"
        np.testing.assert_array_equal(array(parts[key]), expected)
    assert cell.fixed == ("query", "residual", "layers")
    upload = parts["cell/picture/upload?"]
    assert upload["type"] == "image/jpeg" and page_data(cell)["value"]["picture"]["upload"] == list(
        image.size
    )


def test_cell_without_upload_shows_model_input(explorer, trace):
    told = page_data(explorer)
    height, width = trace.view.picture.shape[:2]
    assert told["value"]["picture"] == {
        "upload": [width, height],
        "box": [0, 0, width, height],
        "input": [height, width],
    }
    assert told["parts"]["cell/picture/upload?"] == told["parts"]["cell/picture/input?"]


def test_size_limit_reduces_live_settings(inspector, trace):
    small = vitviz.show("explorer", inspector, trace, megabytes=1, seconds=1e9)
    assert "token" in small.fixed and len(small.page) < 3e6
    nothing = vitviz.show("explorer", inspector, trace, live=[])
    assert set(nothing.fixed) >= {"layer", "token", "direction"}


@pytest.mark.long
def test_cell_contains_attribution_of_live_heads_and_classes(inspector, trace):
    cell = vitviz.show("evidence", inspector, trace, live=["chosen", "target"])
    parts, best = page_data(cell)["parts"], int(trace.logits.argmax())
    account = vitviz.logit_attribution(inspector, trace, best)
    expected = account.sources[4, 1, trace.grid.prefix :].reshape(14, 14).numpy()
    for target in ("top", best):
        key = f"cell/evidence/map?target={target}&relative=no&method=ledger&chosen=5.2&until=0&difference=off"
        np.testing.assert_allclose(array(parts[key]), expected, rtol=1e-6, atol=1e-9)


def test_rejected_settings_are_stored_as_messages(inspector, image):
    trace = inspector.trace(image, ablation=vitviz.Ablation(heads=[(4, 1)]))
    parts = page_data(vitviz.show("evidence", inspector, trace, live=["method"]))["parts"]
    refused = [one["said"]["text"] for one in parts.values() if "said" in one]
    assert refused and all("." in one for one in refused)


def test_survey_cell_shows_distance_and_rejects_rollout(inspector):
    survey = vitviz.survey([vitviz.sample_image("coffee")], inspector)
    parts = page_data(vitviz.show("distance", inspector, survey))["parts"]
    chart = json.loads(
        base64.b64decode(parts["cell/distance/chart?form=depth&rows=plain&difference=off"]["data"])
    )
    expected = survey.mean("distance.distance").ravel()
    np.testing.assert_allclose(chart["series"][0]["y"], expected, rtol=1e-5)
    with pytest.raises(VitvizError, match="Rollout shows one image, and a survey has no average for it"):
        vitviz.show("rollout", inspector, survey)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (dict(view="maps"), "no view 'maps'; there are tour, patches, filters"),
        (dict(view="rollout"), "Rollout shows an image: pass a trace"),
        (dict(view="rollout", of=3), "int cannot be drawn; expected a trace or a survey"),
        (dict(view="positions", language="de"), "language='de' is not valid; expected one of en, zh-CN, ko"),
        (dict(view="positions", colour="red"), "no setting 'colour'"),
        (dict(view="positions", form="round"), "form='round' is not valid; expected one of"),
        (
            dict(view="positions", live=["form"]),
            "live='form' is not valid; expected settings that the numbers depend on",
        ),
    ],
)
def test_invalid_cell_arguments_raise(inspector, asked, said):
    view, of = asked.pop("view"), asked.pop("of", None)
    with pytest.raises(VitvizError, match=re.escape(said)):
        vitviz.show(view, inspector, of, **asked)


def test_image_other_than_the_traced_one_raises(inspector, trace):
    with pytest.raises(VitvizError, match="of 451 x 300. Pass the image that was traced"):
        vitviz.show("rollout", inspector, trace, image=vitviz.sample_image("coffee"))


@pytest.mark.long
def test_label_cannot_close_the_script(inspector, trace):
    from dataclasses import replace

    named = vitviz.Inspector.of(inspector.model, mean=0.5, std=0.5, name="</script><b>")
    evil = replace(trace, labels=("</script><b>",) * len(trace.labels), checkpoint="</script><b>")
    page = vitviz.show("rollout", named, evil, live=[]).page
    assert page.count("</script>") == 2 and "<b>" not in page


def test_frame_contains_page_and_save_writes_it(explorer, tmp_path):
    frame = explorer._repr_html_()
    assert (
        escaping.unescape(re.fullmatch(r'<iframe [^>]*? srcdoc="([^"]*)"></iframe>', frame)[1])
        == explorer.page
    )
    explorer.save(tmp_path / "explorer.html")
    assert (tmp_path / "explorer.html").read_text(encoding="utf-8") == explorer.page
    assert "default-src 'none'" in explorer.page and not re.search(r"(src|href)=\"?http", explorer.page)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.slug)
def test_scripts_of_every_view_can_be_bundled(view):
    sources = {
        **scripts.module_texts(".js"),
        **scripts.generated_modules(),
        "server/i18n/en.js": "export default {};",
    }
    text = bundle_modules(
        sources,
        ["frontend/standalone_html.js", scripts.drawing_module(view.slug)],
        also=["server/i18n/en.js"],
    )
    assert not re.search(r"^(import|export)\b", text, re.M) and " from '" not in text


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        (
            {"a.js": "import { b } from './b.js';", "b.js": "import { a } from './a.js';"},
            "in a circle: a.js → b.js",
        ),
        ({"a.js": "import { b } from './c.js';"}, "a.js imports c.js, which is no module"),
        ({"a.js": "export let x = 1;"}, "a.js has 'export let x = 1;', which a page cannot carry"),
        ({"a.js": "export * from './b.js';"}, "which a page cannot carry"),
    ],
)
def test_unsupported_modules_raise(modules, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        bundle_modules(modules, ["a.js"])


def test_bundle_names_do_not_collide_with_modules():
    """`load` is a function of the canvas: what the bundle adds has a sign that no module uses."""
    for path, text in scripts.module_texts(".js").items():
        declared = re.findall(r"\b(?:const|let|function\*?|class)\s+(\w*\$\w*)", text)
        assert declared == [], path
    text = bundle_modules({"a.js": "export const load = 1;\nexport const modules = 2;"}, ["a.js"])
    own = set(re.findall(r"^const (\S+)", text[: text.index('"a.js"')] + text[text.index("};") :], re.M))
    assert own == {"$modules", "$made", "$step", "$resolved", "$load"}


def test_bundle_keeps_imports_and_exports():
    modules = {
        "x/a.js": "import {\n  one,\n  two as three,\n} from '../b.js';\nexport default one + three;",
        "b.js": "export const one = 1;\nexport async function two() {}\nexport class Three {}",
    }
    text = bundle_modules(modules, ["x/a.js"])
    assert re.search(r'const \{\s*one,\s*two: three,\s*\} = await \$load\("b.js"\);', text)
    assert "$exports.default = one + three;" in text
    for name in ("one", "two", "Three"):
        assert f"$exports.{name} = {name};" in text
