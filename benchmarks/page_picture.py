"""Makes docs/pictures/page.gif: an unknown thing is named once, is known then, and is undone.

    python benchmarks/page_picture.py [-o docs/pictures/page.gif]

Starts `cala serve` on an empty folder, drives the page in chromium on pictures that cala draws, and
puts screenshots into an animation. Needs the serve extra, playwright and chromium.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from cala.app.sample import STRANGER, picture

WIDTH, HEIGHT, SHOWN = 880, 700, 660
PAUSE = 1700  # milliseconds of a frame


class Film:
    """Screenshots of a page, one after the other."""

    def __init__(self, page: Page) -> None:
        self.page, self.frames, self.pauses = page, [], []

    def take(self, times: float = 1.0) -> None:
        self.page.wait_for_timeout(400)  # colours fade
        shot = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        small = shot.resize((SHOWN, SHOWN * HEIGHT // WIDTH), Image.Resampling.LANCZOS)
        self.frames.append(small.quantize(96, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE))
        self.pauses.append(round(PAUSE * times))

    def save(self, path: Path) -> None:
        first, *rest = self.frames
        first.save(
            path, save_all=True, append_images=rest, duration=self.pauses, loop=0, optimize=True
        )


def files(numbers: range) -> list[dict[str, object]]:
    return [
        {"name": f"{n}.jpg", "mimeType": "image/jpeg", "buffer": picture(STRANGER, n)}
        for n in numbers
    ]


def play(page: Page, film: Film) -> None:
    page.get_by_role("button", name=re.compile("Try it with a sample")).wait_for()
    film.take()
    page.get_by_role("button", name=re.compile("Try it with a sample")).click()
    page.get_by_text("knows 4 classes").wait_for()
    page.set_input_files("#recognise-files", files(range(8, 9)))
    page.locator(".answer .big").first.wait_for()
    film.take(1.3)
    card = page.locator(".answer").first
    card.get_by_role("button", name=re.compile("[Ii]t is …")).click()
    card.locator("form input").fill(STRANGER)
    film.take()
    page.keyboard.press("Enter")
    page.locator("#change", has_text=STRANGER).wait_for()
    film.take()
    page.set_input_files("#recognise-files", files(range(9, 13)))
    page.locator(".answer .big >> nth=4").wait_for()
    page.locator("#recognise-summary").evaluate("shown => shown.scrollIntoView()")
    film.take(1.6)
    page.locator("#change").get_by_role("button", name="Undo").click()
    page.get_by_text("knows 4 classes").wait_for()
    film.take(1.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/pictures/page.gif"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as browsers:
        command = [sys.executable, "-m", "cala", "serve", f"{folder}/things", "--port", "0"]
        env = {**os.environ, "CALA_CACHE": f"{folder}/cache", "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as service:
            found = None
            while found is None and (line := service.stdout.readline()):
                found = re.search(r"http://\S+", line)
            browser = browsers.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(found[0])
            film = Film(page)
            play(page, film)
            options.out.parent.mkdir(parents=True, exist_ok=True)
            film.save(options.out)
            browser.close()
            service.terminate()
    print(f"{options.out}: {len(film.frames)} frames, {options.out.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
