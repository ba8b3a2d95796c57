"""An app that ends leaves nothing of its visitors behind, and takes nothing from another one."""

import signal

import pytest

from tests.e2e.conftest import Server


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "service"])
def test_files_lie_in_a_folder_of_the_app_and_go_with_it(tmp_path, how):
    with Server(TMPDIR=str(tmp_path)) as running:
        (own,) = tmp_path.glob("vitviz-*")
        assert len([file for file in own.rglob("*") if file.is_file()]) >= 4, (
            "the samples, as the page shows them"
        )
        running.process.send_signal(how)
        said = running.process.communicate(timeout=20)[0]
    assert running.process.returncode == 0 and "Traceback" not in said, said
    assert not own.exists()
