"""How fast the views follow a camera, beside the model's plain forward with the same browser and camera open.

    python tests/benchmarks/live.py            # needs Chromium and Playwright; --frames 2000 for the memory

Wanted of Attention, Rollout and Attribution: 0.6 of the frames that the plain forward answers, which the same
camera and browser send to a server that does nothing else and of which nothing is drawn; the picture shown at
most 2.5 times as old as a frame takes; memory flat; and a second visitor's first result at most twice as late
as without a camera. Ratios on this machine, for a person to judge: nothing here passes or fails. For
comparison the model is run in a loop, too, with no frames at all, while the camera is on.
"""

from __future__ import annotations

import argparse
import base64
import io
import statistics
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
from PIL import Image
from playwright.sync_api import sync_playwright

import vitviz
from tests.browser.conftest import FLAGS, Server, chromium, open_tab
from tests.browser.helpers import CAMERA, open_with_camera, write_camera_video

VIEWS = ("Attention", "Rollout", "Attribution")
COUNT = "() => (document.documentElement.dataset.camera || '0').split(' ').map(Number)"
STREAM = "() => navigator.mediaDevices.getUserMedia({ video: true }).then((it) => { window.stream = it; })"


# As the page does it: one frame is under way, the newest next. Nothing is shown, nothing is drawn.
SENDING = """async (milliseconds) => {
  const stream = await navigator.mediaDevices.getUserMedia({ video: true });
  const video = Object.assign(document.createElement('video'), { muted: true, srcObject: stream });
  await video.play();
  const sheet = Object.assign(document.createElement('canvas'), { width: 112, height: 112 });
  let [fresh, waiting, count, start] = [true, null, 0, performance.now()];
  const came = () => { fresh = true; waiting?.(); video.requestVideoFrameCallback(came); };
  video.requestVideoFrameCallback(came);
  for (; performance.now() - start < milliseconds; count++) {
    if (!fresh) await new Promise((go) => (waiting = go));
    fresh = false;
    sheet.getContext('2d').drawImage(video, 0, 0, 112, 112);
    const body = sheet.toDataURL('image/jpeg', 0.95).split(',')[1];
    await (await fetch('/', { method: 'POST', body })).text();
  }
  const took = performance.now() - start;
  stream.getTracks().forEach((track) => track.stop());
  return 1000 * count / took;
}"""


class Plain:
    """The model alone, fused, as timm runs it: as a server that answers frames, and in a loop."""

    def __init__(self):
        inspector = vitviz.load("vitviz-tiny", device="cpu")
        self.model = inspector.model.eval()
        mean, std = inspector.preprocessing.scale()

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or an answer waits until its head was acknowledged

            def do_GET(self):
                self.answer(b"<!doctype html>")

            def do_POST(answers):
                sent = base64.b64decode(answers.rfile.read(int(answers.headers["Content-Length"])))
                pixels = torch.tensor(np.asarray(Image.open(io.BytesIO(sent)))).permute(2, 0, 1) / 255
                with torch.inference_mode():
                    answers.answer(str(int(self.model(((pixels - mean) / std)[None]).argmax())).encode())

            def answer(self, body: bytes):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def looped(self, seconds: float) -> float:
        """Runs a second, of one picture over and over."""
        picture, count, start = torch.zeros(1, 3, *(2 * [112])), 0, time.perf_counter()
        with torch.inference_mode():
            while time.perf_counter() - start < seconds:
                self.model(picture)
                count += 1
        return count / (time.perf_counter() - start)


def followed(page, seconds: float) -> tuple[float, list[float]]:
    """Frames a second, and the ages in ms at which some of them were drawn."""
    (first, *_), start, ages = page.evaluate(COUNT), time.perf_counter(), []
    while time.perf_counter() - start < seconds:
        page.wait_for_timeout(200)
        ages += page.evaluate(COUNT)[1:]
    return (page.evaluate(COUNT)[0] - first) / (time.perf_counter() - start), ages


def resident(server: Server) -> float:
    """MB that the server's process holds."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def first_result(browser, url: str) -> float:
    """Seconds from opening the page to a drawn view, of a visitor of one's own."""
    context, start = browser.new_context(), time.perf_counter()
    page = context.new_page()
    page.goto(url + "?sample=rocket&tab=rollout")
    page.locator("#vitviz-rollout [data-ready]").first.wait_for()
    context.close()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frames", type=int, default=300, help="over which the memory is looked at")
    given = parser.parse_args()
    film = write_camera_video(Path(tempfile.mkdtemp()) / "film.y4m", rate=30)  # as a camera's are
    flags = [CAMERA, "--use-fake-ui-for-media-stream", f"--use-file-for-fake-video-capture={film}"]
    with Server() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=[*FLAGS, *flags])
        page, plain = open_with_camera(browser, server.url), Plain()
        sender = browser.new_page()
        sender.goto(plain.url)
        alone = statistics.median(first_result(browser, server.url) for _ in range(4))
        print(f"first result of a visitor, nobody else there  {alone:5.1f} s")
        for view in VIEWS:
            open_tab(page, view)
            ratios, rates, old, looped = [], [], [], []
            for _ in range(given.rounds):  # close to each other: the machine may have more to do
                sender.bring_to_front()
                plainly = sender.evaluate(SENDING, 1000 * given.seconds)
                page.bring_to_front()
                page.evaluate(STREAM)
                looped.append(plain.looped(given.seconds / 2))
                page.evaluate("() => window.stream.getTracks().forEach((track) => track.stop())")
                page.get_by_role("button", name="Camera", exact=True).click()
                page.wait_for_function(f"() => ({COUNT})()[0] > 3", timeout=60_000)
                rate, ages = followed(page, given.seconds)
                page.get_by_role("button", name="Stop", exact=True).click()
                rates.append(rate)
                ratios.append(rate / plainly)
                old.append((statistics.median(ages) * rate / 1000) + 1)  # when the next takes its place
            print(
                f"{view:10} {statistics.median(rates):5.1f} frames/s   {statistics.median(ratios):4.2f} of"
                f" the plain forward (wanted 0.6)   at most {statistics.median(old):4.2f} frames old (2.5)"
                f"   of the model in a loop {statistics.median(rates) / statistics.median(looped):4.2f}"
            )
        sender.close()
        page.get_by_role("button", name="Camera", exact=True).click()
        open_tab(page, "Rollout")
        second = statistics.median(first_result(browser, server.url) for _ in range(4))
        print(f"first result of a visitor beside a camera     {second:5.1f} s   {second / alone:4.2f} (2)")
        before, start = resident(server), page.evaluate(COUNT)[0]
        heap = "() => performance.memory.usedJSHeapSize / 2 ** 20"
        script = page.evaluate(heap)
        page.wait_for_function(f"() => ({COUNT})()[0] > {start + given.frames}", timeout=0)
        print(
            f"memory over {given.frames} frames: server {before:.0f} -> {resident(server):.0f} MB,", end=" "
        )
        print(f"page {script:.0f} -> {page.evaluate(heap):.0f} MB")
        browser.close()


if __name__ == "__main__":
    main()
