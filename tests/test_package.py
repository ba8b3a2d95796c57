"""Wheel and sdist contain exactly the required files."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parent.parent


def run(*command, **more):
    found = subprocess.run([*map(str, command)], capture_output=True, text=True, **more)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    return found.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build wheel and sdist from a copy, so that no files are left in the checkout."""
    source, out = tmp_path_factory.mktemp("package") / "source", tmp_path_factory.mktemp("built")
    left_out = shutil.ignore_patterns(".git", "__pycache__", "*.pyi", "*.egg-info", "build", "node_modules")
    shutil.copytree(ROOT, source, ignore=left_out)
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir", out, source)
    return out


def names(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_they_pass_twine(built):
    told = run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir())
    assert told.count("PASSED") == 2


def test_the_wheel_holds_the_package_and_what_is_shipped(built):
    found = names(built)
    kinds = (".py", ".js", ".css", ".json", ".jpg", ".md", ".txt", ".woff2")
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "vitviz").rglob("*.*")
        if path.suffix in kinds and "__pycache__" not in path.parts
    }
    shipped = {
        "vitviz-tiny": ("config.json", "model.safetensors", "reference.safetensors"),
        "vitviz-positions-none-0": ("config.json", "model.safetensors"),
        "vitviz-positions-1d-0": ("config.json", "model.safetensors"),
        "vitviz-positions-2d-0": ("config.json", "model.safetensors"),
    }
    weights = {f"vitviz/weights/{folder}/{name}" for folder, files in shipped.items() for name in files}
    assert found == expected | weights | {"vitviz/py.typed"}
    assert next(built.glob("*.whl")).stat().st_size < 25e6


def test_the_sdist_builds_the_same_wheel(built, tmp_path):
    shutil.unpack_archive(next(built.glob("*.tar.gz")), tmp_path)
    (source,) = tmp_path.iterdir()
    beside = {path.name for path in source.iterdir()} - {"vitviz", "vitviz.egg-info", "weights"}
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / "again", source)
    assert names(tmp_path / "again") == names(built)
    needed = {"pyproject.toml", "requirements.txt", "setup.py", "README.md", "LICENSE"}
    assert beside == needed | {"MANIFEST.in", "PKG-INFO", "setup.cfg"}


INSTALLED = """
import sys
from vitviz.cli import main
for asked in (["app", "--help"], ["checkpoints", "--here"]):
    sys.argv = ["vitviz", *asked]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code

from vitviz.server import i18n
from vitviz.server.api import modules
from vitviz.server.page.components import Canvas
from vitviz.views import VIEWS
assert len(modules.style_sheets()) > 9_000 and i18n.language_script()
assert all(len(i18n.translations(tag)) > 300 for tag in ("ko", "zh-CN"))
for view in VIEWS:
    Canvas(view.slug), modules.module_source(modules.script_of(view.slug))

import vitviz
inspector = vitviz.load("vitviz-tiny", device="cpu")
print(vitviz.__file__, *inspector.grid().pixels)
print(inspector.trace(vitviz.sample_image("coffee")).top(1)[0][0])
"""


def test_what_is_installed_starts_without_the_checkout(built, tmp_path):
    """Use a separate environment that borrows this environment's libraries but no other vitviz."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "clean")
    python = tmp_path / "clean/bin/python"
    site = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])").strip())
    run(
        sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, next(built.glob("*.whl"))
    )
    borrowed = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "borrowed.pth").write_text(borrowed)

    told = run(python, "-c", INSTALLED, cwd=tmp_path, env={"PATH": "", "HOME": str(tmp_path)})
    told = told.splitlines()
    assert any("--port" in line for line in told)
    assert {"vitviz-tiny", "vitviz-positions-none-0"} <= {line.split(" ")[0] for line in told}
    labels = json.loads((ROOT / "weights/vitviz-tiny/config.json").read_text())["label_descriptions"].values()
    assert told[-2].split() == [str(site / "vitviz/__init__.py"), "112", "112"] and told[-1] in labels
