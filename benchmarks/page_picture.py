"""Makes docs/pictures: an unknown thing is named once, is known then, and is undone.

    python benchmarks/page_picture.py [-o docs/pictures]

Starts `cala serve` on an empty folder, drives the page in chromium on pictures that cala draws, and
puts screenshots into page.gif; some also stand alone, as page-NAME.png. things.png shows the drawn
pictures. Needs the serve extra, playwright and chromium.
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

from cala.app.sample import CLASSES, LEARNED, STRANGER, picture

WIDTH, HEIGHT, SHOWN = 880, 700, 660
PAUSE = 1700  # milliseconds of a frame


class Film:
    """Screenshots of a page, one after the other."""

    def __init__(self, page: Page) -> None:
        self.page, self.frames, self.pauses, self.alone = page, [], [], {}

    def take(self, times: float = 1.0, alone: str = "") -> None:
        self.page.wait_for_timeout(400)  # colours fade
        shot = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        small = shot.resize((SHOWN, SHOWN * HEIGHT // WIDTH), Image.Resampling.LANCZOS)
        self.frames.append(small.quantize(96, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE))
        self.pauses.append(round(PAUSE * times))
        if alone:
            self.alone[alone] = self.frames[-1]

    def save(self, folder: Path) -> None:
        first, *rest = self.frames
        first.save(
            folder / "page.gif", save_all=True, append_images=rest, duration=self.pauses, loop=0,
            optimize=True,
        )  # fmt: skip
        for name, frame in self.alone.items():
            frame.save(folder / f"page-{name}.png", optimize=True)


def things(side: int = 96) -> Image.Image:
    """What is learned, a column for each class, and what is not known."""
    labels = [*CLASSES, STRANGER]
    sheet = Image.new("RGB", (len(labels) * side, LEARNED * side), "white")
    for column, label in enumerate(labels):
        for row in range(LEARNED if label in CLASSES else 5):
            drawn = Image.open(io.BytesIO(picture(label, row))).resize((side - 4, side - 4))
            sheet.paste(drawn, (column * side + 2, row * side + 2))
    return sheet


def files(numbers: range) -> list[dict[str, object]]:
    return [
        {"name": f"{n}.jpg", "mimeType": "image/jpeg", "buffer": picture(STRANGER, n)}
        for n in numbers
    ]


def play(page: Page, film: Film) -> None:
    page.get_by_role("button", name=re.compile("Try it with a sample")).wait_for()
    film.take(alone="start")
    page.get_by_role("button", name=re.compile("Try it with a sample")).click()
    page.get_by_text("knows 4 classes").wait_for()
    page.set_input_files("#recognise-files", files(range(8, 9)))
    page.locator(".answer .big").first.wait_for()
    film.take(1.3, alone="unknown")
    card = page.locator(".answer").first
    card.get_by_role("button", name=re.compile("[Ii]t is …")).click()
    card.locator("form input").fill(STRANGER)
    film.take(alone="named")
    page.keyboard.press("Enter")
    page.locator("#change", has_text=STRANGER).wait_for()
    film.take()
    page.set_input_files("#recognise-files", files(range(9, 13)))
    page.locator(".answer .big >> nth=4").wait_for()
    page.locator("#recognise-summary").evaluate("shown => shown.scrollIntoView()")
    film.take(1.6, alone="known")
    page.locator("#change").get_by_role("button", name="Undo").click()
    page.get_by_text("knows 4 classes").wait_for()
    film.take(1.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/pictures"))
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
            options.out.mkdir(parents=True, exist_ok=True)
            film.save(options.out)
            things().quantize(128, dither=Image.Dither.NONE).save(
                options.out / "things.png", optimize=True
            )
            browser.close()
            service.terminate()
    for path in sorted(options.out.iterdir()):
        print(f"{path}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
