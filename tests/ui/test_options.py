"""The command line, and what a Space says through its environment."""

import pytest

from vitviz.ui.options import parse
from vitviz.ui.studio import MB


def test_without_options_it_serves_this_machine_alone(monkeypatch):
    for name in ("GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT", "SPACES_ZERO_GPU", "VITVIZ_CHECKPOINTS"):
        monkeypatch.delenv(name, raising=False)
    options = parse([])
    assert (options.host, options.port, options.share) == ("127.0.0.1", 7860, False)
    assert options.settings.device == "auto" and options.settings.allowed == ()


def test_a_space_decides_host_device_and_checkpoints(monkeypatch):
    monkeypatch.setenv("GRADIO_SERVER_NAME", "0.0.0.0")
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setenv("VITVIZ_CHECKPOINTS", "vitviz-tiny, vit_base_patch16_224.dino,")
    options = parse([])
    assert options.host == "0.0.0.0" and options.settings.device == "cpu"
    assert options.settings.allowed == ("vitviz-tiny", "vit_base_patch16_224.dino")


def test_caches_are_given_in_megabytes_and_cannot_be_nothing(capsys):
    assert parse(["--trace-cache", "64"]).settings.trace_cache == 64 * MB
    with pytest.raises(SystemExit):
        parse(["--trace-cache", "0"])
    assert "no size of a cache" in capsys.readouterr().err
