"""Surveys by two Ray actors on this machine, one of which is killed during the survey."""

import os
import signal
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

import vitviz
from vitviz.errors import VitvizError
from vitviz.surveys import MEASURES, Quantity

pytestmark = pytest.mark.processes

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'vitviz[cluster]'")


@dataclass(frozen=True)
class KillingMeasure:
    """Measure the attention distance and, once, kill the process that measures."""

    mark: str
    victim: str
    name: str = "distance"
    says: str = "distance, and a death"
    quantities: tuple[Quantity, ...] = MEASURES["distance"].quantities

    def of(self, seen):
        if os.path.exists(self.victim):  # only the test writes this file, so the single-process run is safe
            try:
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return MEASURES["distance"].of(seen)


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for number in range(30):
        pixels = random.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02d}.png")
    (folder / "07.png").write_bytes(b"damaged")
    return folder


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        # Ray's actors run at low priority by default, which made them ten times slower beside other tests.
        patch.setenv("RAY_worker_niceness", "0")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
    ray.shutdown()


def assert_equal_surveys(one, other):
    assert (one.images, one.left_out) == (
        other.images,
        other.left_out,
    ) and one.sums.keys() == other.sums.keys()
    for name in one.sums:
        np.testing.assert_allclose(one.mean(name), other.mean(name), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(one.error(name), other.error(name), rtol=1e-6, atol=1e-9)


def test_survey_survives_killed_worker(cluster, image_folder, inspector, tmp_path):
    mark, victim = tmp_path / "died", tmp_path / "victim"
    deadly = KillingMeasure(str(mark), str(victim))
    one = vitviz.survey(image_folder, inspector, [deadly, "entropy"], out=tmp_path / "one", part=4, batch=2)
    assert not mark.exists()
    victim.touch()
    seen = []
    two = vitviz.survey(
        image_folder, inspector, [deadly, "entropy"], out=tmp_path / "two", part=4, batch=2, workers=2,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert mark.exists(), "no worker was killed"
    assert_equal_surveys(one, two)
    assert (two.images, two.left_out) == (29, 1) and str(two.skipped[0]).startswith("07.png")
    assert len(seen) == 8 and seen[-1] == (30, 30)
    names = [[row.name for row in one.mistakes.surest] for one in (one, two)]
    assert names[0] == names[1]
    rows = [sorted(path.name for path in (tmp_path / where / "parts").iterdir()) for where in ("one", "two")]
    assert rows[0] == rows[1] == [f"{number:08d}.npz" for number in range(8)]


def test_single_process_resumes_cluster_survey(cluster, image_folder, inspector, tmp_path):
    ask = dict(out=tmp_path, part=4, batch=2)
    ended = vitviz.survey(
        image_folder, inspector, ["entropy"], workers=2, progress=lambda done, total: done < 9, **ask
    )
    assert not ended.about["finished"] and 9 <= ended.images + ended.left_out < 30
    whole = vitviz.survey(image_folder, inspector, ["entropy"], **ask)
    assert_equal_surveys(whole, vitviz.survey(image_folder, inspector, ["entropy"], part=4, batch=2))
    again = vitviz.survey(image_folder, inspector, ["entropy"], workers=2, **ask)
    assert_equal_surveys(whole, again)


def test_busy_cluster_falls_back_to_one_process(cluster, image_folder, inspector, monkeypatch):
    from vitviz.surveys import cluster as own

    class Holder:
        """Occupy a core. The class is local, so Ray pickles it by value and imports nothing."""

        def held(self):
            return True

    monkeypatch.setattr(own, "WAITS", 2.0)
    holders = [ray.remote(num_cpus=1)(Holder).remote() for _ in range(2)]
    ray.get([one.held.remote() for one in holders])
    with pytest.warns(UserWarning, match="no CPU of the cluster was free"):
        found = vitviz.survey(image_folder, inspector, ["entropy"], workers=2, part=4, batch=2)
    assert_equal_surveys(found, vitviz.survey(image_folder, inspector, ["entropy"], part=4, batch=2))
    ray.kill(holders.pop())
    assert own._free("CPU", 2) == 1, "one core is free: one worker, not two that wait for each other"
    found = vitviz.survey(image_folder, inspector, ["entropy"], workers=2, part=4, batch=2)
    assert (found.images, found.left_out) == (29, 1)
    ray.kill(holders.pop())


def test_user_errors_in_workers_raise(cluster, image_folder, inspector):
    with pytest.raises(VitvizError, match="accuracy needs one for every image"):
        vitviz.survey(image_folder, inspector, ["accuracy"], workers=1, part=4)
    with pytest.raises(VitvizError, match="workers=-1 is not valid; expected how many of Ray's actors"):
        vitviz.survey(image_folder, inspector, workers=-1)
    for wrong in (0, 1.5, float("nan")):
        with pytest.raises(VitvizError, match="gpus_per_worker=.* is not valid; expected a number above 0"):
            vitviz.survey(image_folder, inspector, workers=1, gpus_per_worker=wrong)


def test_workers_share_gpus_by_fraction(cluster, monkeypatch):
    from vitviz.surveys import cluster as own

    monkeypatch.setattr(ray, "available_resources", lambda: {"GPU": 2.0, "CPU": 2.0})
    assert [own._free("GPU", 9, each) for each in (1, 0.5, 0.25)] == [2, 4, 8]
    assert own._free("GPU", 3, 0.5) == 3 and own._free("CPU", 9) == 2


def test_missing_ray_raises(image_folder, inspector, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(VitvizError, match=r"pip install 'vitviz\[cluster\]'"):
        vitviz.survey(image_folder, inspector, workers=2)
    assert vitviz.survey(image_folder, inspector, limit=2).images == 2
