"""The program as the installed script runs it, in a folder of its own."""

import sys

import pytest

from vitviz.cli import main


@pytest.fixture
def said(monkeypatch, capsys, tmp_path):
    """Runs the program: (exit status, what it prints, what it tells beside it)."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["vitviz", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code or 0, told.out, told.err

    return run
