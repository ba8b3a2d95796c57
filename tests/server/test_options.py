"""The command line, and what a Space says through its environment."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from vitviz.server.options import MB, parse_options


def test_without_options_it_serves_this_machine_alone(monkeypatch):
    for name in ("GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT", "SPACES_ZERO_GPU", "VITVIZ_CHECKPOINTS"):
        monkeypatch.delenv(name, raising=False)
    options = parse_options([])
    assert (options.host, options.port, options.share) == ("127.0.0.1", 7860, False)
    assert options.settings.device == "auto" and options.settings.allowed == ()


def test_a_space_decides_host_device_and_checkpoints(monkeypatch):
    monkeypatch.setenv("GRADIO_SERVER_NAME", "0.0.0.0")
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setenv("VITVIZ_CHECKPOINTS", "vitviz-tiny, vit_base_patch16_224.dino,")
    options = parse_options([])
    assert options.host == "0.0.0.0" and options.settings.device == "cpu"
    assert options.settings.allowed == ("vitviz-tiny", "vit_base_patch16_224.dino")


def test_caches_are_given_in_megabytes_and_cannot_be_nothing(capsys):
    assert parse_options(["--trace-cache", "64"]).settings.trace_cache == 64 * MB
    with pytest.raises(SystemExit):
        parse_options(["--trace-cache", "0"])
    assert "not a cache size" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
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
def test_what_cannot_be_is_a_usage_line(given, said, capsys):
    with pytest.raises(SystemExit):
        parse_options(given)
    assert said in capsys.readouterr().err


def test_a_port_in_the_environment_is_checked_like_the_option(monkeypatch, capsys):
    monkeypatch.setenv("GRADIO_SERVER_PORT", "99999")
    with pytest.raises(SystemExit):
        parse_options([])
    assert "from 1 to 65535" in capsys.readouterr().err and parse_options(["--port", "8000"]).port == 8000


def test_names_of_hosts_come_from_the_command_line_or_the_environment(monkeypatch):
    monkeypatch.setenv("VITVIZ_ALLOWED_HOSTS", "a.example, *.b.example,")
    assert parse_options([]).allowed_hosts == ("a.example", "*.b.example")
    given = parse_options(["--allowed-host", "c.example", "--allowed-host", "d.example"])
    assert given.allowed_hosts == ("c.example", "d.example")
    monkeypatch.delenv("VITVIZ_ALLOWED_HOSTS")
    assert parse_options([]).allowed_hosts == ()


def test_pages_that_may_embed_are_origins_or_words_of_csp(monkeypatch, capsys):
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
def test_only_a_page_of_ones_own_writes_beside_files(monkeypatch, given, environment):
    for name in ("GRADIO_SERVER_NAME", "SPACE_ID", "VITVIZ_CHECKPOINTS", "VITVIZ_ALLOWED_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    assert parse_options([]).settings.keeps
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert not parse_options(given).settings.keeps


@pytest.mark.parametrize(
    ("fails", "said", "asks"),
    [(2, "localhost is no place", 3), (3, "localhost is no place", 3), (1, "port", 1)],
)
def test_a_start_that_gradio_gave_up_on_a_busy_machine_is_tried_again(fails, said, asks):
    from vitviz.server.page.build import serve_with_retries

    asked = []

    def launch(**how):
        asked.append(how)
        if len(asked) <= fails:
            raise ValueError(said)

    with pytest.raises(ValueError, match=said) if fails >= asks else nullcontext():
        serve_with_retries(SimpleNamespace(launch=launch), port=1)
    assert asked == asks * [{"port": 1}]
