"""Interrupted surveys resume: no image twice, none lost, bit-equal numbers."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitviz
from tests.surveys.conftest import noise
from vitviz.errors import VitvizError
from vitviz.surveys import sources

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def inspector(small_inspector):
    return small_inspector


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for number in range(30):
        noise(random, 32, 32).save(folder / f"{number:02d}.png")
    (folder / "07.png").write_bytes(b"damaged")
    return folder


def run_survey(image_folder, inspector, out, **asked):
    return vitviz.survey(image_folder, inspector, ["distance", "entropy"], out=out, part=4, batch=2, **asked)


def numbers(folder):
    with np.load(folder / "averages.npz") as file:
        return {
            name: file[name]
            for name in file.files
            if name.endswith((".mean", ".standard_error", ".pictures", ".quantiles"))
        }


def report(folder):
    """Return the report without dates and speed."""
    written = (folder / "report.html").read_text(encoding="utf-8")
    varying = r"\d{4}-\d\d-\d\dT[\d:+]+|<tr><td>(images_per_second|seconds)</td>.*?</tr>"
    return re.sub(varying, "", written)


def assert_same(one, other):
    assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.long
@pytest.mark.parametrize("ended", [1, 6, 13, 27])
def test_resumed_survey_gives_equal_numbers(image_folder, inspector, tmp_path, ended):
    whole = run_survey(image_folder, inspector, tmp_path / "whole")
    first = run_survey(image_folder, inspector, tmp_path / "out", progress=lambda done, total: done < ended)
    assert not first.about["finished"] and not (tmp_path / "out" / "report.html").exists()
    seen = []
    result = run_survey(
        image_folder, inspector, tmp_path / "out", progress=lambda done, total: seen.append(done)
    )
    assert (result.images, result.left_out) == (29, 1) == (whole.images, whole.left_out) and seen[-1] == 30
    assert seen[0] > (ended - 1) // 4 * 4, "finished parts are not repeated"
    assert_same(numbers(tmp_path / "out"), numbers(tmp_path / "whole"))
    assert report(tmp_path / "out") == report(tmp_path / "whole")
    names = (
        [line.split(",")[1] for line in (tmp_path / "out" / "pictures.csv").read_text().splitlines()[1:]]
        if (tmp_path / "out" / "pictures.csv").exists()
        else None
    )
    assert names is None or names == [f"{number:02d}.png" for number in range(30) if number != 7]


@pytest.mark.processes
def test_survey_resumes_after_sigkill(image_folder, inspector, small_weights, tmp_path):
    """The process is killed several times at work, without a chance to clean up."""
    out = tmp_path / "out"
    code = f"""
import vitviz
from tests.surveys.conftest import noise
inspector = vitviz.load({str(small_weights / "small")!r}, device="cpu")
print("at work", flush=True)
vitviz.survey({str(image_folder)!r}, inspector, ["distance", "entropy"], out={str(out)!r}, part=4, batch=2,
              progress=lambda done, total: print(done, flush=True))
"""
    for after in (2, 3):
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _, line in zip(range(1 + after), process.stdout, strict=False):
            assert line
        time.sleep(0.003 * after)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    done = sorted(path.name for path in (out / "parts").iterdir())
    assert any(not name.startswith(".") for name in done) and not (out / "report.html").exists()
    (out / "parts" / ".00000007.123.npz").write_bytes(b"half a part")  # as a kill during writing leaves it
    result = run_survey(image_folder, inspector, out)
    run_survey(image_folder, inspector, tmp_path / "whole")
    assert (result.images, result.left_out) == (29, 1)
    for name, value in numbers(
        tmp_path / "whole"
    ).items():  # another process may use another number of threads
        np.testing.assert_allclose(numbers(out)[name], value, rtol=1e-5, atol=1e-7)


def test_changed_settings_in_one_folder_raise(image_folder, inspector, tmp_path):
    run_survey(image_folder, inspector, tmp_path, limit=4)
    with pytest.raises(VitvizError, match="limit was '4' and is now '5'.*another folder"):
        run_survey(image_folder, inspector, tmp_path, limit=5)
    with pytest.raises(VitvizError, match=r"measures was .*another folder"):
        vitviz.survey(image_folder, inspector, ["distance"], out=tmp_path, part=4, batch=2, limit=4)
    run_survey(image_folder, inspector, tmp_path / "drawn", limit=4, seed=1)
    with pytest.raises(VitvizError, match="seed was '1' and is now '2'.*another folder"):
        run_survey(
            image_folder, inspector, tmp_path / "drawn", limit=4, seed=2
        )  # other images would be mixed


def test_damaged_part_is_reported(image_folder, inspector, tmp_path):
    run_survey(image_folder, inspector, tmp_path)
    part = tmp_path / "parts" / "00000003.npz"
    part.write_bytes(part.read_bytes()[: os.path.getsize(part) // 2])
    with pytest.raises(VitvizError, match="00000003.npz cannot be read"):
        run_survey(image_folder, inspector, tmp_path)
    part.unlink()
    assert run_survey(image_folder, inspector, tmp_path).images == 29


def test_survey_without_readable_images_raises(inspector, tmp_path):
    with pytest.raises(VitvizError, match="None of the images could be read. Picture 1"):
        vitviz.survey([b"one", b"two"], inspector)
    with pytest.raises(VitvizError, match="at least one image"):
        vitviz.survey([], inspector)


@pytest.mark.long
@pytest.mark.parametrize("fails", ["savez", "savez_compressed", "writerow"])
def test_full_disk_raises_and_survey_resumes(image_folder, inspector, tmp_path, monkeypatch, fails):
    whole, calls = run_survey(image_folder, inspector, tmp_path / "whole"), []
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def writing(real):
        def write(file, *given, **named):
            calls.append(1)
            if fails != "savez" or len(calls) > 2:  # two parts are written before the disk is full
                real(file, *given, **named)
                raise full
            return real(file, *given, **named)

        return write

    if fails == "writerow":
        from vitviz.surveys.report import SkippedList

        monkeypatch.setattr(SkippedList, "add", writing(SkippedList.add))
    else:
        monkeypatch.setattr(np, fails, writing(getattr(np, fails)))
    with pytest.raises(
        VitvizError, match="cannot be written to out: No space left.*call it again to continue"
    ):
        run_survey(image_folder, inspector, tmp_path / "out")
    assert not list((tmp_path / "out").rglob(".*")), "no temporary file remains"
    assert len(list((tmp_path / "out/parts").glob("*.npz"))) == (2 if fails == "savez" else 8)
    monkeypatch.undo()
    assert run_survey(image_folder, inspector, tmp_path / "out").images == whole.images
    assert_same(numbers(tmp_path / "out"), numbers(tmp_path / "whole"))


def test_file_name_that_is_not_utf8_is_escaped(inspector, tmp_path):
    folder = os.fsencode(tmp_path / "pictures") + b"/\xe9t\xe9"
    os.makedirs(folder)
    for name in (b"caf\xe9.png", b"\xff.png"):
        with open(folder + b"/" + name, "wb") as file:
            noise(np.random.default_rng(0), 32, 32).save(file, "png")
    with open(folder + b"/bad\xe9.png", "wb") as file:
        file.write(b"damaged")
    found = run_survey(tmp_path / "pictures", inspector, tmp_path / "out")
    assert found.images == 2 and found.left_out == 1
    assert found.skipped[0].name == r"\udce9t\udce9/bad\udce9.png"
    assert r"bad\udce9.png" in (tmp_path / "out" / "skipped.csv").read_text(encoding="utf-8")
    assert run_survey(tmp_path / "pictures", inspector, tmp_path / "out").images == 2, "and it resumes"


def test_temporary_files_of_ended_processes_are_removed(image_folder, inspector, tmp_path):
    run_survey(image_folder, inspector, tmp_path / "out")
    ended = subprocess.Popen(["true"])
    ended.wait()
    folder = tmp_path / "out"
    left = [folder / "parts" / f".00000000.npz.{ended.pid}", folder / f".pictures.csv.{ended.pid}"]
    left += [folder / f".report.html.{os.getpid()}", folder / f".report.html.{10**30}"]
    others = [folder / f".report.html.{os.getppid()}", folder / ".notes.txt"]
    for path in (*left, *others):
        path.write_bytes(b"half")
    run_survey(image_folder, inspector, folder)
    assert not any(path.exists() for path in left) and all(path.exists() for path in others)


def test_unreadable_folder_is_skipped_and_reported(image_folder, inspector, tmp_path, monkeypatch):
    source, real = tmp_path / "some", sources.os.scandir
    for name in ("a", "closed", "z"):
        (source / name).mkdir(parents=True)
        Image.new("RGB", (40, 40)).save(source / name / "1.png")

    def scandir(path):
        if "closed" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(sources.os, "scandir", scandir)
    found = vitviz.survey(source, inspector, out=tmp_path / "out")
    assert (found.images, found.left_out) == (2, 1)
    lines = (tmp_path / "out" / "skipped.csv").read_text().splitlines()
    assert lines[1:] == ["1,closed/,This folder could not be read (Permission denied)."]
    monkeypatch.setattr(sources.os, "scandir", lambda path: scandir("closed"))
    with pytest.raises(VitvizError, match="some cannot be read: Permission denied"):
        vitviz.survey(source, inspector)


def test_unusable_output_folder_raises(image_folder, inspector, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        with pytest.raises(VitvizError, match="cannot be written to .*Choose another folder") as told:
            run_survey(image_folder, inspector, path)
        assert str(tmp_path) not in str(told.value)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "survey.json").write_bytes(b"\xff{")
    with pytest.raises(VitvizError, match="Another survey"):
        run_survey(image_folder, inspector, tmp_path / "begun")


@pytest.mark.parametrize("name", ["list.csv", "one.tar", "list.parquet"])
def test_unreadable_source_raises(inspector, tmp_path, name, monkeypatch):
    path = tmp_path / name
    path.write_bytes(b"path\n\xff\xfe\n")
    with pytest.raises(VitvizError, match=f"{name} cannot be read"):
        vitviz.survey(path, inspector)
    with pytest.raises(VitvizError, match="cannot be read: File name too long"):
        vitviz.survey(tmp_path / ("x" * 300), inspector)
