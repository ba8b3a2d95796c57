"""The installed command-line program, run in a temporary folder."""

import sys

import pytest

from vitviz.cli import main


@pytest.fixture
def run_vitviz(monkeypatch, capsys, tmp_path):
    """Return a function that runs the program: (exit status, standard output, standard error)."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["vitviz", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return exit_info.value.code or 0, captured.out, captured.err

    return run
