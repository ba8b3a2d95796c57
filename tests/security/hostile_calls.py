"""Malformed requests to endpoints, listeners and routes, determined by a seed."""

import json
import random
from dataclasses import dataclass, field
from urllib.parse import quote

VALUES = [
    None, True, False, -1, 0, 1, 2, 7, 99, 1.5, 1e308, -1e-308, 10**18, 10**30, float("nan"), float("inf"),
    "", " ", "auto", "class", "mean", "max",
    "0", "-1", "1e3", "9" * 400, "²", "１", "nan", "1-4", "4-1", "0-99999999999", "x" * 10_000, "\0",
    "\ud83d", "../../etc/passwd", "/etc/passwd",
    "<script>alert(1)</script>", "{checkpoint}", "%s%n", "coffee", "chelsea", "../coffee", [], [[]],
    [[[1]]], {}, {"a": {}}, {"path": None},
    {"path": "", "meta": {"_type": "gradio.FileData"}}, {"url": "http://127.0.0.1:9/x"}, [None] * 500,
    "vitviz-tiny", "vitviz-tiny@0", "vitviz-tiny@999",
    "vitviz-tiny@" + "9" * 40, "@", "a/b@../../x", "hf-hub:x/y", "local-dir:/etc", "~/x",
    "vit_base_patch16_224", "resnet50", "a/" + "b" * 300,
    "heads=1.1", "heads=99.1", "heads=" + "1.1_" * 2_000, "patches=0", "patches=" + ".".join(map(str,
    range(196))), "patches=-1", "patches=0 patches_as=x",
    "mlps=1 heads_as=zero", "other=coffee at=3", "other=../x at=-1",
    "heads=1.1 heads_as=tokens patches=5.6 patches_as=dropped", "=", "a=b=c",
]  # fmt: skip


@dataclass(frozen=True)
class HostileRequest:
    """An HTTP request. If `event` is true, the response is fetched by the returned event id."""

    method: str
    path: str
    json: object = None
    content: bytes | None = None
    headers: dict = field(default_factory=dict)
    event: bool = False


def call(name: str, signatures: dict[str, list[dict]], listeners: dict[int, int]) -> HostileRequest:
    """Return a request to an endpoint (with its documented parameters) or a listener (with its inputs)."""
    rng = random.Random(name)
    kind = rng.choice(["run", "run", "call", "queue", "queue", "raw"])
    endpoint = rng.choice(sorted(signatures))
    parameters = signatures[endpoint]
    data = [_value(parameter, rng) for parameter in parameters]
    body: dict = {"data": data}
    if kind == "queue":
        number = rng.choice(sorted(listeners))
        body = {"fn_index": number, "data": [rng.choice(VALUES) for _ in range(listeners[number])]}
        body |= {
            "event_data": rng.choice(
                [*VALUES, {"index": rng.choice(VALUES)}, {rng.choice("abc"): rng.choice(VALUES)}]
            )
        }
        return HostileRequest("POST", "gradio_api/queue/join", body, event=True)
    if kind == "raw":
        text = bytearray(json.dumps(body).encode())
        for _ in range(rng.choice([1, 5])):
            text[rng.randrange(len(text))] = rng.randrange(256)
        return HostileRequest(
            "POST",
            f"gradio_api/run{endpoint}",
            content=bytes(text),
            headers={"content-type": "application/json"},
        )
    if rng.random() < 0.1:
        body = rng.choice(
            [
                {"data": rng.choice(VALUES)},
                {**body, "session_hash": rng.choice(VALUES)},
                {**body, "fn_index": rng.choice(VALUES)},
            ]
        )
    return HostileRequest("POST", f"gradio_api/{kind}{endpoint}", body, event=kind == "call")


def _value(parameter: dict, rng: random.Random) -> object:
    """Return a value for a parameter: usually a valid one, so that later parameters are reached."""
    if rng.random() < 0.4:
        return rng.choice(VALUES)
    valid = {"image": "coffee", "without": rng.choice(["", "heads=8.2", "patches=0.17"])}
    return valid.get(parameter["parameter_name"], parameter.get("parameter_default"))


def route(name: str, key: str, items: list[tuple[str, str]]) -> HostileRequest:
    """Return a request for view data, a file or an upload. `items` are pairs of view and item."""
    rng = random.Random(name)
    kind = rng.choice(["item"] * 4 + ["key", "file", "file", "upload", "method", "odd"])
    view, item = rng.choice(items)
    settings = {
        rng.choice(
            [
                "layer",
                "head",
                "query",
                "fusion",
                "count",
                "target",
                "patch",
                "size",
                "form",
                "rows",
                rng.choice("xyz"),
            ]
        ): rng.choice(VALUES)
        for _ in range(2)
    }
    query = "&".join(
        f"{quote(one)}={quote(str(value).encode('utf-8', 'replace'))[:6_000]}"
        for one, value in settings.items()
    )
    base = "gradio_api/vitviz"
    if kind == "item":
        return HostileRequest(
            "GET", f"{base}/{key}/{view}/{rng.choice([item, item, 'numbers.npz', 'x'])}?{query}"
        )
    if kind == "key":
        odd = rng.choice(["nokey", key[:-1], "%00", "..%2f..", "x" * 4_000, "%ff", "*"])
        return HostileRequest(
            "GET",
            f"{base}/{odd}/{rng.choice([f'{view}/{item}', 'everything.zip', 'picture/upload'])}?{query}",
        )
    if kind == "file":
        path = rng.choice(
            [
                "/etc/passwd",
                "app.py",
                "../app.py",
                "/proc/self/environ",
                "/dev/zero",
                "weights/vitviz-tiny/config.json",
                "%00",
                "a" * 3_000,
                "http://127.0.0.1:9/",
            ]
        )
        front = rng.choice(
            [
                "gradio_api/file=",
                "gradio_api/file/",
                "file=",
                "static/",
                "assets/",
                f"{base}/modules/1/",
                "gradio_api/custom_component/x/client/component/",
                "gradio_api/stream/",
            ]
        )
        return HostileRequest("GET", front + rng.choice(["", "../../../", "..%2f..%2f", "%2e%2e/"]) + path)
    if kind == "upload":
        return _upload(rng)
    if kind == "method":
        path = rng.choice(
            [
                "config",
                "gradio_api/info",
                f"{base}/{key}/{view}/{item}",
                "gradio_api/upload",
                "gradio_api/queue/join",
                "gradio_api/cancel",
                "gradio_api/reset",
            ]
        )
        return HostileRequest(
            rng.choice(["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "POST"]),
            path,
            rng.choice(VALUES[:12]) if rng.random() < 0.5 else None,
        )
    odd = rng.choice(
        [
            {"range": "bytes=0-" + "9" * 30},
            {"accept-encoding": "x" * 9_000},
            {"cookie": "a=b;" * 2_000},
            {"x-forwarded-host": "evil.example"},
            {"content-length": "-1"},
        ]
    )
    return HostileRequest(
        "GET",
        rng.choice(
            [
                "",
                "config",
                "gradio_api/info",
                "gradio_api/queue/status",
                f"{base}/{key}/{view}/{item}",
                "?checkpoint=" + quote(str(rng.choice(VALUES)).encode("utf-8", "replace")),
                "gradio_api/heartbeat/",
            ]
        ),
        headers=odd,
    )


def _upload(rng: random.Random) -> HostileRequest:
    """Return a malformed form, or files with hostile names."""
    boundary = rng.choice(["x", "y" * 300, ""])
    name = rng.choice(["../../x.png", "a" * 5_000, "\0", "x.html", "x.svg", "con", ".", "..", "/etc/passwd"])
    part = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode()
        + rng.randbytes(200)
    )
    body = rng.choice(
        [
            part,
            part * 2_000,
            b"",
            b"--",
            part[:-100],
            part + f"\r\n--{boundary}--\r\n".encode(),
            b"\r\n".join([b"A: b"] * 10_000),
        ]
    )
    return HostileRequest(
        "POST",
        "gradio_api/upload",
        content=body,
        headers={"content-type": f"multipart/form-data; boundary={boundary}"},
    )
