"""Command-line options and environment variables of the server."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from vitviz.server.options import MB, parse_options


def test_default_options_serve_localhost_only(monkeypatch):
    for name in ("GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT", "SPACES_ZERO_GPU", "VITVIZ_CHECKPOINTS"):
        monkeypatch.delenv(name, raising=False)
    options = parse_options([])
    assert (options.host, options.port, options.share) == ("127.0.0.1", 7860, False)
    assert options.settings.device == "auto" and options.settings.allowed == ()


def test_space_environment_sets_host_device_and_checkpoints(monkeypatch):
    monkeypatch.setenv("GRADIO_SERVER_NAME", "0.0.0.0")
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setenv("VITVIZ_CHECKPOINTS", "vitviz-tiny, vit_base_patch16_224.dino,")
    options = parse_options([])
    assert options.host == "0.0.0.0" and options.settings.device == "cpu"
    assert options.settings.allowed == ("vitviz-tiny", "vit_base_patch16_224.dino")


def test_cache_size_is_in_megabytes_and_not_zero(capsys):
    assert parse_options(["--trace-cache", "64"]).settings.trace_cache == 64 * MB
    with pytest.raises(SystemExit):
        parse_options(["--trace-cache", "0"])
    assert "not a cache size" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--port", "99999"], "from 1 to 65535"),
        (["--port", "0"], "from 1 to 65535"),
        (["--port", "-1"], "--port"),
        (["--port", "http"], "from 1 to 65535"),
        (["--trace-cache", "inf"], "not a cache size"),
        (["--model-cache", "nan"], "not a cache size"),
        (["--picture-cache", "1e30"], "not a cache size"),
        (["--upload-quota", "-inf"], "--upload-quota"),
        (["--upload-quota", "much"], "much"),
    ],
)
def test_invalid_option_exits_with_usage(given, message, capsys):
    with pytest.raises(SystemExit):
        parse_options(given)
    assert message in capsys.readouterr().err


def test_port_of_environment_is_validated(monkeypatch, capsys):
    monkeypatch.setenv("GRADIO_SERVER_PORT", "99999")
    with pytest.raises(SystemExit):
        parse_options([])
    assert "from 1 to 65535" in capsys.readouterr().err and parse_options(["--port", "8000"]).port == 8000


def test_allowed_hosts_from_options_or_environment(monkeypatch):
    monkeypatch.setenv("VITVIZ_ALLOWED_HOSTS", "a.example, *.b.example,")
    assert parse_options([]).allowed_hosts == ("a.example", "*.b.example")
    given = parse_options(["--allowed-host", "c.example", "--allowed-host", "d.example"])
    assert given.allowed_hosts == ("c.example", "d.example")
    monkeypatch.delenv("VITVIZ_ALLOWED_HOSTS")
    assert parse_options([]).allowed_hosts == ()


def test_frame_ancestors_are_validated_origins(monkeypatch, capsys):
    assert parse_options([]).frame_ancestors == ()
    given = ["--frame-ancestor", "https://moodle.example.org:8443", "--frame-ancestor", "self"]
    assert parse_options(given).frame_ancestors == ("https://moodle.example.org:8443", "'self'")
    monkeypatch.setenv("VITVIZ_FRAME_ANCESTORS", "https://*.lab.example")
    assert parse_options([]).frame_ancestors == ("https://*.lab.example",)
    for wrong in ("example.org", "https://a.example; script-src *", "https://a.example/path", "*"):
        with pytest.raises(SystemExit):
            parse_options(["--frame-ancestor", wrong])
        assert "is not a page's origin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "environment"),
    [
        (["--host", "0.0.0.0"], {}),
        (["--share"], {}),
        (["--allowed-host", "vit.example.org"], {}),
        ([], {"SPACE_ID": "a/b"}),
        ([], {"VITVIZ_CHECKPOINTS": "vitviz-tiny"}),
        ([], {"VITVIZ_ALLOWED_HOSTS": "vit.example.org"}),
    ],
)
def test_only_a_local_server_saves_settings(monkeypatch, given, environment):
    for name in ("GRADIO_SERVER_NAME", "SPACE_ID", "VITVIZ_CHECKPOINTS", "VITVIZ_ALLOWED_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    assert parse_options([]).settings.keeps
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert not parse_options(given).settings.keeps


@pytest.mark.parametrize(
    ("failures", "message", "attempts"),
    [(2, "localhost is no place", 3), (3, "localhost is no place", 3), (1, "port", 1)],
)
def test_launch_is_retried_after_gradio_timeout(failures, message, attempts):
    from vitviz.server.page.build import serve_with_retries

    launches = []

    def launch(**options):
        launches.append(options)
        if len(launches) <= failures:
            raise ValueError(message)

    with pytest.raises(ValueError, match=message) if failures >= attempts else nullcontext():
        serve_with_retries(SimpleNamespace(launch=launch), port=1)
    assert launches == attempts * [{"port": 1}]
