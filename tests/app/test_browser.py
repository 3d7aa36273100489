"""The page in a real browser, at the width of a desk and of a phone.

`CALA_SCREENSHOTS=FOLDER` keeps pictures of what was seen.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import zipfile
from collections import Counter
from importlib import resources
from pathlib import Path

import httpx
import pillow_heif
import pytest
from PIL import Image

import cala
from app.clients import png, teach
from app.servers import serving
from cala.app.factory import FILES
from conftest import missing

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
# Milliseconds: they cost nothing where all goes well, and machines may be busy.
TIMEOUT = int(os.environ.get("CALA_BROWSER_MS", 120_000))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def chromium():
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("browser", "pip install playwright")
    if CHROMIUM is None:
        missing("browser", "chromium is not installed")
    flags = [
        "--no-sandbox",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
    ]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=flags, timeout=TIMEOUT)
        yield browser
        browser.close()


class Page:
    """A page, and what it must not do."""

    def __init__(self, browser, url: str, size: str, **options) -> None:
        width, height = SIZES[size]
        self.size, self.url = size, url
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, has_touch=size == "phone", **options
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(TIMEOUT)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._same_host)

    def _same_host(self, request) -> None:
        if not request.url.startswith((self.url, "blob:", "data:")):
            self.faults.append(f"asked {request.url}")

    def open(self, tab: str = "") -> Page:
        self.page.goto(f"{self.url}/#/{tab}")
        self.page.reload()  # another place of the same page would not be opened anew
        self.page.get_by_text("knows").first.wait_for()
        return self

    def shoot(self, name: str) -> None:
        folder = os.environ.get("CALA_SCREENSHOTS")
        if folder:
            path = Path(folder, f"{name}-{self.size}.png")
            self.page.screenshot(path=path, full_page=True)

    def check(self) -> None:
        assert self.faults == []
        wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} pixels stick out"


@pytest.fixture(params=list(SIZES))
def seen(request, chromium, folder):
    with serving(folder, limits={"file": 2 << 20}) as url:
        page = Page(chromium, url, request.param)
        yield page
        page.shoot(f"end-of-{request.node.originalname}")
        page.check()
        page.context.close()


def files(label: int, numbers: range) -> list[dict]:
    return [
        {"name": f"photo {n}.png", "mimeType": "image/png", "buffer": png(label, n, side=240)}
        for n in numbers
    ]


def test_teach_recognise_undo(seen):
    page = seen.open("recognise").page
    page.set_input_files("#recognise-files", files(12, range(100, 102)))
    page.wait_for_selector(".answer .big >> nth=1")
    before = page.locator(".answer .big").all_inner_texts()
    assert "kingfisher" not in before
    seen.shoot("recognise-before")

    page.get_by_role("tab", name="Teach").click()
    assert page.locator("#teach-go").is_disabled()
    page.get_by_label("What is it called?").fill("kingfisher <b>")
    page.set_input_files("#teach-files", files(12, range(5)))
    page.get_by_text("5 of 5 photos looked at").wait_for()
    seen.shoot("teach-ready")
    page.get_by_role("button", name="Teach from 5 photos").click()
    page.get_by_role("heading", name="kingfisher <b>: learned from 5 photos").wait_for()
    page.get_by_text("Your last 2 photos: 2 answers change").wait_for()
    assert "β" not in page.inner_text("body")
    assert "knows 13 classes" in page.inner_text("#about")
    seen.shoot("teach-done")

    page.get_by_role("tab", name="Recognise").click()
    changed = page.locator(".answer .big").filter(has_text="kingfisher <b>")
    changed.nth(1).wait_for()  # the answers from before follow the model
    page.set_input_files("#recognise-files", files(12, range(103, 104)))
    page.locator(".answer .big").first.filter(has_text="kingfisher <b>").wait_for()
    page.locator(".answer summary").first.click()
    page.locator(".answer img.face").first.wait_for()
    seen.shoot("recognise-after")

    page.get_by_role("tab", name="Classes").click()
    page.get_by_text("13 classes").first.wait_for()
    page.get_by_text("add kingfisher <b> (5 photos)").wait_for()
    page.locator("#classes-list img.face").first.wait_for()
    seen.shoot("classes")

    page.get_by_role("button", name="Undo the last change").click()
    page.get_by_text("undo: add kingfisher <b>").wait_for()
    assert "knows 12 classes" in page.inner_text("#about")
    page.get_by_role("tab", name="Recognise").click()
    page.set_input_files("#recognise-files", files(12, range(104, 105)))
    page.wait_for_selector(".answer .big >> nth=3")
    assert page.locator(".answer .big").first.inner_text() != "kingfisher <b>"


def test_rename_forget_add_search(seen):
    page = seen.open("classes").page
    page.get_by_text("12 classes").first.wait_for()
    page.get_by_label("Search").fill("class 1")
    page.get_by_text("3 classes of 12").wait_for()
    page.get_by_label("Search").fill("nothing like it")
    page.get_by_text("No class is called anything").wait_for()
    page.get_by_label("Search").fill("class 7")
    page.get_by_role("button", name="Rename: class 7").click()
    page.get_by_label("New name").fill("class 8")
    page.locator("#ask-yes").click()
    page.get_by_text("There is already a class class 8").wait_for()
    seen.shoot("rename-refused")
    page.get_by_label("New name").fill("heron")
    page.keyboard.press("Enter")
    page.get_by_text("rename class 7 to heron").wait_for()
    page.get_by_label("Search").fill("heron")
    page.get_by_role("button", name="Forget: heron").click()
    page.locator("#history").get_by_text("forget heron").wait_for()
    page.locator("#change").get_by_role("button", name="Undo").click()
    page.locator("#history").get_by_text("undo: forget heron").wait_for()
    page.locator("#change").get_by_role("button", name="Redo").wait_for()
    page.get_by_role("button", name="Add photos: heron").click()
    assert "these will be added" in page.inner_text("#teach-hint")
    page.set_input_files("#teach-files", files(7, range(50, 52)))
    page.get_by_role("button", name="Add 2 photos").click()
    page.get_by_role("heading", name="heron: learned from 2 photos").wait_for()


def drop_folder(page, place: str, photos: dict[str, bytes]) -> None:
    """A folder dropped by hand, as the browser's entries show it."""
    tree = {path: list(data) for path, data in photos.items()}
    page.evaluate(
        """([place, tree]) => {
          const folders = {};
          for (const [path, bytes] of Object.entries(tree)) {
            const [folder, name] = path.split("/");
            (folders[folder] = folders[folder] || []).push(new File([new Uint8Array(bytes)], name));
          }
          const reader = (entries) => ({ readEntries: (done) => done(entries.splice(0, 100)) });
          const items = Object.entries(folders).map(([name, files]) => ({
            webkitGetAsEntry: () => ({
              name, isDirectory: true,
              createReader: () => reader(files.map((file) => (
                { name: file.name, isFile: true, file: (done) => done(file) }))),
            }),
          }));
          const event = new Event("drop", { bubbles: true, cancelable: true });
          Object.defineProperty(event, "dataTransfer", { value: { items, files: [] } });
          document.querySelector(`${place} .drop`).dispatchEvent(event);
        }""",
        [place, tree],
    )


def texts_of(language: str):
    """The words of the page in a language, by key."""
    found = json.loads((FILES / "texts" / f"{language}.json").read_text("utf-8"))

    def text(key: str, **values) -> str:
        chosen = found[key]
        if isinstance(chosen, dict):
            chosen = chosen["one" if values["n"] == 1 else "other"]
        return chosen.format(**values)

    return text


@pytest.mark.parametrize(
    ("size", "language"), [("desktop", "en-GB"), ("phone", "en-US"), ("phone", "de-AT")]
)
def test_the_first_five_minutes_of_a_stranger(chromium, tmp_path, monkeypatch, size, language):
    """From an empty folder to a corrected answer, with no folder of photos and no second page."""
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    text = texts_of(language[:2])
    with serving(tmp_path / "birds") as url:
        seen = Page(chromium, url, size, locale=language)
        page = seen.page
        page.goto(url)
        page.locator("#start-name").wait_for()
        seen.shoot("five-minutes-1-empty")
        assert page.locator("#start-go").is_hidden()
        for name, label in (("robin", 1), ("wren", 2)):
            page.set_input_files("#start-files", files(label, range(5)))
            page.get_by_label(text("start.name")).fill(name)
            page.get_by_role("button", name=text("start.add-named", name=name, n=5)).click()
            page.locator("#start-classes li", has_text=name).wait_for()
        seen.shoot("five-minutes-2-two-classes")
        page.get_by_role("button", name=text("start.go"), exact=True).click()
        page.get_by_text(text("page.knows", n=2)).wait_for()

        page.set_input_files("#recognise-files", [*files(1, range(50, 51)), *files(7, range(2))])
        page.locator(".answer .big >> nth=2").wait_for()
        assert page.locator(".answer .big").last.inner_text() == "robin"
        page.locator(".answer").last.get_by_role("button", name=text("recognise.right")).click()
        page.locator("#change", has_text=text("learned", name="robin", n=1)).wait_for()
        seen.shoot("five-minutes-3-right")
        wrong = page.locator(".answer").nth(1)
        wrong.locator(".verdict button[aria-expanded]").click()
        wrong.locator("form input").fill("heron")
        seen.shoot("five-minutes-4-correcting")
        page.keyboard.press("Enter")
        page.locator("#change", has_text=text("learned.new", name="heron", n=1)).wait_for()
        page.locator(".answer .big").first.filter(has_text="heron").wait_for()  # the other one
        assert page.locator("#recognise").is_visible()
        seen.shoot("five-minutes-5-corrected")
        page.locator("#change").get_by_role("button", name=text("undo")).click()
        page.get_by_text(text("page.knows", n=2)).wait_for()
        page.locator("#change").get_by_role("button", name=text("redo")).click()
        page.get_by_text(text("page.knows", n=3)).wait_for()
        seen.check()
        assert page.evaluate("document.documentElement.lang") == language[:2]
        other = texts_of({"en": "de", "de": "en"}[language[:2]])
        page.locator("#language").click()  # is remembered
        page.get_by_text(other("page.knows", n=3)).wait_for()
        page.reload()
        page.get_by_text(other("page.knows", n=3)).wait_for()
        seen.context.close()
    assert cala.load(tmp_path / "birds").classes == ["robin", "wren", "heron"]


@pytest.mark.parametrize("size", SIZES)
def test_a_sample_needs_no_photo(chromium, tmp_path, monkeypatch, size):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    with serving(tmp_path / "sample") as url:
        seen = Page(chromium, url, size)
        page = seen.page
        page.goto(url)
        page.get_by_role("button", name=re.compile("Try it with a sample")).click()
        page.get_by_text("knows 4 classes").wait_for()
        page.get_by_role("button", name="Try it with some").click()
        page.locator(".answer .big >> nth=9").wait_for()
        assert page.locator("#recognise-summary").inner_text().startswith("10 photos: ")
        seen.shoot("sample")
        seen.check()
        seen.context.close()


def test_many_photos(seen, tmp_path):
    page = seen.open("recognise").page
    some = [f for label in range(6) for f in files(label, range(100, 110))]
    for number, one in enumerate(some):
        one["name"] = f"{number}.png"
    notes = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no photo"}
    page.set_input_files("#recognise-files", [*some, *files(14, range(3)), notes])
    page.locator("#recognise-summary", has_text="1 could not be read").wait_for()
    page.locator("#recognise-summary:not(:has-text('still'))").wait_for()
    assert page.inner_text("#recognise-summary").startswith("64 photos: ")
    cards = page.locator(".answer:visible")
    assert cards.count() == 64
    seen.shoot("many")

    page.select_option("#filter", "class:class 3")
    shown = cards.locator(".big").all_text_contents()
    assert len(shown) >= 8
    assert set(shown) == {"class 3"}
    page.select_option("#filter", "failed")
    assert cards.count() == 1
    page.select_option("#filter", "all")
    page.select_option("#sort", "unsure")
    # Not the inner text: cards are drawn when they come into view.
    assert cards.locator(".big").first.text_content() == "Unknown"

    with page.expect_download() as saved:
        page.locator("#save-csv").click()
    saved.value.save_as(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 64
    with page.expect_download() as saved:
        page.locator("#save-zip").click()
    saved.value.save_as(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.testzip() is None
        folders = Counter(name.split("/")[0] for name in archive.namelist())
    named = Counter(row["class"] for row in rows if row["class"])
    assert folders == named

    page.reload()  # nothing is lost
    page.locator("#recognise-summary:not(:has-text('still'))", has_text="64 photos").wait_for()
    page.get_by_role("button", name="Clear").click()
    assert page.locator(".answer").count() == 0
    page.wait_for_timeout(300)  # until the browser has written it down
    page.reload()
    page.get_by_text("knows 12 classes").wait_for()
    assert page.locator(".answer").count() == 0


def test_several_are_named_at_once(seen):
    page = seen.open("recognise").page
    page.set_input_files("#recognise-files", [*files(13, range(3)), *files(4, range(90, 92))])
    page.locator(".answer .big >> nth=4").wait_for()
    for place in (2, 3, 4):
        page.locator(".answer .select input").nth(place).check()
    seen.shoot("several")
    page.get_by_label("What are they?").fill("heron")
    page.get_by_role("button", name="Name them").click()
    page.locator("#change", has_text="New class heron: 3 photos learned").wait_for()
    assert page.locator("#picked").is_hidden()
    taught = httpx.get(f"{seen.url}/v1/classes?search=heron").json()["classes"][0]
    assert taught["photos"] == 3

    page.locator(".answer").nth(0).focus()  # by keyboard: 1 is the likeliest class
    page.keyboard.press("1")
    page.locator("#change", has_text="class 4: 1 photo learned").wait_for()
    page.wait_for_function(
        "document.activeElement === document.querySelectorAll('.answer')[1]"  # the next one
    )
    page.locator(".answer").nth(1).get_by_role("button", name="No, it is …").click()
    page.locator(".answer").nth(1).get_by_role("button", name="None of my classes").click()
    page.locator("#change", has_text="1 photo noted as none of your classes").wait_for()
    page.locator(".answer").nth(4).get_by_role("button", name="Change").click()
    page.locator(".answer").nth(4).locator("form input").fill("egret")  # it moves there
    page.keyboard.press("Enter")
    page.locator("#change", has_text="New class egret").wait_for()
    changes = httpx.get(f"{seen.url}/v1/history").json()["changes"]
    assert [one["action"] for one in changes[:3]] == ["add", "reject", "add"]
    found = httpx.get(f"{seen.url}/v1/classes?search=heron").json()["classes"][0]
    assert found["photos"] == 2


def test_photos_of_a_class(seen):
    with httpx.Client(base_url=seen.url) as client:
        for name, label in (("heron", 12), ("egret", 13)):
            assert teach(client, name, label, 4).status_code == 201
        odd = [("images", ("odd.png", png(5, 70), "image/png"))]
        client.post("/v1/photos", data={"name": "heron"}, files=odd)
    page = seen.open("classes").page
    heron = page.locator("#classes-list > li").filter(has=page.get_by_text("heron", exact=True))
    heron.get_by_text("1 doubtful").wait_for()
    heron.locator("summary").click()
    heron.locator(".tiles .doubtful img.face").wait_for()
    assert heron.locator(".tiles li").count() == 5
    assert "looks like class 5" in heron.locator(".tiles .doubtful").inner_text()
    seen.shoot("class-photos")
    heron.locator(".tiles .doubtful").get_by_role("button", name="It is …").click()
    page.get_by_label("Name", exact=True).fill("class 5")
    page.locator("#ask-yes").click()
    page.locator("#change", has_text="One photo moved from heron to class 5").wait_for()
    page.get_by_role("button", name="Remove: photo 4 of heron").click()
    page.locator("#history").get_by_text("of heron").wait_for()
    if seen.size == "desktop":
        egret = page.locator("#classes-list > li").filter(has=page.get_by_text("egret", exact=True))
        page.evaluate("scrollTo(0, 0)")  # both are in view
        heron.locator(".tiles img").first.drag_to(egret)
        page.locator("#change", has_text="One photo moved from heron to egret").wait_for()
        assert httpx.get(f"{seen.url}/v1/classes?search=egret").json()["classes"][0]["photos"] == 5
    page.get_by_role("button", name="Merge: egret").click()
    page.get_by_label("The other class").fill("heron")
    page.locator("#ask-yes").click()
    page.locator("#history").get_by_text("merge egret into heron").wait_for()
    found = httpx.get(f"{seen.url}/v1/classes?search=heron").json()["classes"][0]
    assert found["photos"] == 7

    page.locator("#reject summary").click()
    page.set_input_files("#reject-files", files(17, range(3)))
    page.locator("#history").get_by_text("3 photos noted as none").wait_for()


@pytest.mark.parametrize("size", SIZES)
def test_from_no_model_to_a_recognised_class(chromium, tmp_path, monkeypatch, size):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    with serving(tmp_path / "birds") as url:
        seen = Page(chromium, url, size)
        page = seen.page
        page.goto(url)
        page.locator("#start-name").wait_for()
        assert page.locator("nav").is_hidden()
        seen.shoot("first")
        photos = {f"class {n}/{k}.png": png(n, k) for n in range(6) for k in range(4)}
        drop_folder(page, "#start", {**photos, "class 1/bad.png": b"no photo"})
        page.get_by_text("24 photos of 6 classes").wait_for()
        page.get_by_text("1 photo cannot be used. class 1/bad.png: not an image").wait_for()
        seen.shoot("first-photos")
        page.get_by_role("button", name="Try it", exact=True).click()
        page.get_by_text("knows 6 classes").wait_for()
        page.get_by_text(re.compile("note.* about this model")).click()
        page.get_by_text("6 of 6 known classes have fewer than 5 photos").wait_for()
        page.set_input_files("#recognise-files", files(3, range(50, 51)))
        page.locator(".answer .big").filter(has_text="class 3").wait_for()
        seen.check()
        seen.context.close()


def test_a_slow_line_shows_how_far_it_is(chromium, folder):
    with serving(folder) as url:
        seen = Page(chromium, url, "phone").open("recognise")
        line = seen.context.new_cdp_session(seen.page)
        slow = {"offline": False, "latency": 100, "downloadThroughput": -1}
        line.send("Network.emulateNetworkConditions", {**slow, "uploadThroughput": 100_000})
        large = png(3, 100, side=240) + bytes(400_000)
        photo = {"name": "slow.png", "mimeType": "image/png", "buffer": large}
        seen.page.set_input_files("#recognise-files", [photo])
        seen.page.get_by_text(re.compile(r"Sending, [1-9][\d.]* %")).wait_for()
        seen.shoot("slow")
        seen.page.locator(".answer .big").wait_for()
        seen.check()
        seen.context.close()


def test_bad_input(seen):
    page = seen.open("recognise").page
    wrong = [
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no photo"},
        {"name": "empty.jpg", "mimeType": "image/jpeg", "buffer": b""},
        {"name": "cut.png", "mimeType": "image/png", "buffer": png(1, 1)[:60]},
        {"name": "large.png", "mimeType": "image/png", "buffer": bytes(3 << 20)},
    ]
    page.set_input_files("#recognise-files", wrong)
    page.locator(".answer .error >> nth=3").wait_for()
    errors = " ".join(page.locator(".answer .error").all_inner_texts())
    assert "notes.txt: not an image" in errors
    assert "empty.jpg: empty file" in errors
    assert "larger than 2 MB" in errors
    seen.shoot("bad-photos")

    page.get_by_role("tab", name="Teach").click()
    page.get_by_label("What is it called?").fill("unknown")
    page.set_input_files("#teach-files", [*files(13, range(2)), wrong[0], files(13, range(1))[0]])
    page.get_by_text("4 of 4 photos looked at, 2 cannot be used").wait_for()
    page.get_by_role("button", name="Teach from 2 photos").click()
    page.get_by_text("a class cannot be called 'unknown'").wait_for()
    seen.shoot("teach-refused")
    page.get_by_role("button", name="Remove notes.txt").click()
    page.get_by_text("3 of 3 photos looked at, 1 cannot be used").wait_for()

    page.get_by_role("tab", name="Check").click()
    bad = {"name": "bad.zip", "mimeType": "application/zip", "buffer": b"no zip"}
    page.set_input_files("#check-zip", bad)
    page.get_by_text("the archive cannot be read").wait_for()
    seen.shoot("check-refused")


def test_check_and_keep(seen, photos):
    page = seen.open("check").page
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        for path in (photos / "test").rglob("*.png"):
            written.write(path, f"{path.parent.name}/{path.name}")
    zipped = {"name": "t.zip", "mimeType": "application/zip", "buffer": archive.getvalue()}
    page.set_input_files("#check-zip", zipped)
    page.get_by_text("Once you have taught new classes").wait_for()
    with httpx.Client(base_url=seen.url) as client:
        for label in (12, 13):
            assert teach(client, f"class {label}", label).status_code == 201
    page.set_input_files("#check-folder", str(photos / "test"))
    slider = page.get_by_label("Favour old or new classes")
    slider.wait_for()
    assert "51 photos" in page.inner_text("#check-result")
    shown = page.inner_text(".numbers")
    slider.focus()
    page.keyboard.press("End")
    assert page.inner_text(".numbers") != shown
    assert "Favours new classes more than now" in page.inner_text("#check-words")
    page.locator("#check-wrong img.face").first.wait_for()  # as pictures
    seen.shoot("check")
    page.get_by_role("button", name="Keep this").click()
    page.get_by_text("Kept.").wait_for()
    kept = httpx.get(f"{seen.url}/v1/history").json()["changes"][0]["text"]
    assert re.match(r"tune delta ", kept)


def test_keyboard_alone(seen):
    page = seen.open().page
    page.get_by_role("tab", name="Recognise").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#teach").is_visible()
    assert page.evaluate("document.activeElement.id") == "tab-teach"
    page.keyboard.press("End")
    assert page.locator("#check").is_visible()
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "recognise-files"


def test_every_field_has_a_name(seen):
    page = seen.open().page
    for tab in ("recognise", "teach", "classes", "check"):
        seen.open(tab)
        page.wait_for_timeout(100)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("input, select, button, progress, [role=img]")]
            .filter((n) => n.checkVisibility() && !(n.labels && n.labels.length)
              && !n.textContent.trim() && !n.getAttribute("aria-label")
              && !n.getAttribute("aria-labelledby")).map((n) => n.outerHTML)"""
        )
        assert nameless == []


@pytest.fixture(scope="module")
def axe():
    """The program of axe-core."""
    try:
        return (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
    except ModuleNotFoundError:
        missing("browser", "pip install axe-playwright-python")


def serious(page, axe: str) -> list[str]:
    """What axe-core finds that keeps people out."""
    page.wait_for_timeout(300)  # colours fade
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html']}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(
    ("size", "language", "scheme"), [("desktop", "en", "light"), ("phone", "de", "dark")]
)
def test_nobody_is_kept_out(chromium, folder, photos, axe, size, language, scheme):
    text = texts_of(language)
    with serving(folder) as url:
        with httpx.Client(base_url=url) as client:
            assert teach(client, "class 12", 12).status_code == 201
        seen = Page(chromium, url, size, locale=language, color_scheme=scheme)
        page, found = seen.page, {}
        page.goto(url)
        page.get_by_text(text("page.knows", n=13)).wait_for()
        page.set_input_files("#recognise-files", [*files(3, range(90, 91)), *files(14, range(2))])
        page.locator(".answer .big >> nth=2").wait_for()
        page.locator(".answer summary").first.click()
        page.locator(".answer .near").first.wait_for()
        page.locator(".verdict button[aria-expanded]").nth(1).click()
        found["recognise"] = serious(page, axe)
        page.set_input_files("#recognise-files", files(4, range(90, 94)))
        page.locator(".answer .big >> nth=6").wait_for()
        page.locator(".answer .select input").first.check()
        found["grid"] = serious(page, axe)
        page.locator("#picked-name").fill("heron")
        page.keyboard.press("Enter")
        page.locator("#change", has_text=text("learned.new", name="heron", n=1)).wait_for()
        page.locator("#recognise-live").click()
        page.locator("#live-sure:not(:empty)").wait_for()
        found["live"] = serious(page, axe)
        page.locator("#live-close").click()
        page.locator("#tab-teach").click()
        page.set_input_files("#teach-files", files(13, range(3)))
        page.get_by_text(text("teach.looked", done=3, photos=text("photos", n=3))).wait_for()
        found["teach"] = serious(page, axe)
        page.locator("#tab-classes").click()
        page.locator("#classes-list summary").first.click()
        page.locator("#classes-list .tiles li").first.wait_for()
        page.locator("#reject summary").click()
        found["classes"] = serious(page, axe)
        page.locator(".changes button").nth(1).click()
        page.locator("#ask-input").wait_for()
        found["rename"] = serious(page, axe)
        page.locator("#ask-no").click()
        page.locator("#tab-check").click()
        page.set_input_files("#check-folder", str(photos / "test"))
        page.locator("#check-wrong").wait_for()
        page.locator("#check-live summary").first.click()
        found["check"] = serious(page, axe)
        seen.check()
        seen.context.close()
    with serving(folder.parent / "nothing yet") as url:
        seen = Page(chromium, url, size, locale=language, color_scheme=scheme)
        seen.page.goto(url)
        seen.page.set_input_files("#start-files", files(1, range(2)))
        seen.page.locator("#start-name").fill("robin")
        found["start"] = serious(seen.page, axe)
        seen.page.locator("#start-add").click()
        seen.page.locator("#start-classes li").wait_for()
        found["classes so far"] = serious(seen.page, axe)
        seen.check()
        seen.context.close()
    assert found == {view: [] for view in found}


def test_the_api_for_people(seen):
    page = seen.open().page
    page.get_by_role("link", name="API").click()
    page.get_by_role("heading", name="POST /v1/predict").wait_for()
    assert "[object" not in page.inner_text("body")
    assert "`" not in page.inner_text("#operations p")
    assert f"{seen.url}/v1/predict" in page.inner_text("#examples")
    assert page.locator("article").count() > 15
    seen.shoot("docs")


def test_camera(seen):
    page = seen.open().page
    page.get_by_role("button", name="Take a photo").click()
    page.locator("#camera-yes:enabled").click()
    page.locator(".answer .big").first.wait_for()


def test_share(chromium, folder):
    token = "a-token-for-the-phone"
    with serving(folder, token=token, share=True) as url:
        seen = Page(chromium, url, "desktop")
        page = seen.page
        page.goto(f"{url}/#token={token}")
        page.get_by_role("button", name="Share").click()
        link = page.locator("#shared-link").get_attribute("href")
        assert re.fullmatch(rf"http://[^/]+:{url.rpartition(':')[2]}/#token={token}", link)
        assert page.locator(".qr path").get_attribute("d").startswith("M0 0h1v1h-1z")
        longest = page.evaluate(
            """async () => {
              const { qrCode } = await import("/static/qr.js");
              return qrCode("x".repeat(106)).map((row) => row.map(Number).join("")).join("\\n");
            }"""
        )
        # What segno 1.6.6 makes of it, with version 5, error correction L and mask 0.
        assert hashlib.sha256(longest.encode()).hexdigest()[:16] == "28571cbdad171764"
        seen.shoot("share")
        seen.check()
        seen.context.close()


def test_live(seen):
    page = seen.open().page
    page.get_by_role("button", name="Live").click()
    page.locator("#live-sure", has_text=re.compile("sure|looks most like")).wait_for()
    page.get_by_label("Name, if the answer is wrong").fill("test card")
    page.keyboard.press("Enter")
    page.locator("#live-said", has_text="test card: 1 photo").wait_for()
    seen.shoot("live")
    page.wait_for_function("document.activeElement.id === 'live-learn'")
    page.keyboard.press("Space")
    page.locator("#live-said", has_text="test card: 2 photos").wait_for()
    page.get_by_role("button", name="Close", exact=True).click()
    found = httpx.get(f"{seen.url}/v1/classes?search=test").json()["classes"][0]
    assert found["photos"] == 2


def test_formats_of_phones(seen):
    """A browser that cannot show a format shows the small copy of the service."""
    written = io.BytesIO()
    pillow_heif.register_heif_opener()  # to write only
    Image.open(io.BytesIO(png(3, 100, side=240))).convert("RGB").save(written, "HEIF")
    heic = {"name": "IMG_1.HEIC", "mimeType": "image/heic", "buffer": written.getvalue()}
    page = seen.open().page
    page.set_input_files("#recognise-files", [heic])
    page.locator(".answer .big").filter(has_text="class 3").wait_for()
    page.locator(".answer .frame img.face").wait_for()


def test_dark(chromium, folder):
    with serving(folder) as url:
        page = Page(chromium, url, "desktop", color_scheme="dark").open("recognise")
        page.page.set_input_files("#recognise-files", files(3, range(100, 101)))
        page.page.locator(".answer .big").wait_for()
        page.shoot("dark")
        page.check()
        page.context.close()


def test_a_lost_connection_comes_back(chromium, folder):
    with serving(folder) as url:
        page = Page(chromium, url, "phone").open("teach")
        page.page.get_by_label("What is it called?").fill("wader")
        page.page.set_input_files("#teach-files", files(14, range(3)))
        page.page.get_by_text("3 of 3 photos looked at").wait_for()
    port = int(url.rpartition(":")[2])
    page.page.get_by_role("button", name="Teach from 3 photos").click()
    page.page.get_by_text("This page tries again by itself").wait_for()
    page.shoot("lost")
    with serving(folder, port=port):
        page.page.locator("#lost").wait_for(state="hidden")
        page.page.get_by_role("button", name="Teach from 3 photos").click()  # photos are sent again
        page.page.get_by_role("heading", name="wader: learned from 3 photos").wait_for()
        page.check()
        page.context.close()


def test_token(chromium, folder):
    token, read = "a secret of many letters".replace(" ", "-"), "another-one-to-read"
    with serving(folder, token=token, read_token=read) as url:
        page = Page(chromium, url, "phone")
        page.page.goto(url)
        page.page.get_by_label("Token", exact=True).fill("wrong")
        page.page.get_by_role("button", name="Go on").click()
        page.page.get_by_text("The token is wrong").wait_for()
        page.shoot("token")
        page.page.get_by_label("Token", exact=True).fill(read)
        page.page.get_by_role("button", name="Go on").click()
        page.page.get_by_text("knows 12 classes").wait_for()
        page.page.get_by_role("tab", name="Teach").click()
        page.page.locator("#teach-locked").wait_for()
        page.check()
        page.context.close()
        other = Page(chromium, url, "desktop")
        other.page.goto(f"{url}/#token={token}")
        other.page.get_by_text("knows 12 classes").wait_for()
        assert "token" not in other.page.url
        other.context.close()


def test_a_thousand_classes(chromium, folder):
    """Rows are made up on the way to the page: a model of this size would take a minute to make."""
    with serving(folder) as url:
        page = Page(chromium, url, "phone")

        def thousand(route):
            start = int(re.search(r"offset=(\d+)", route.request.url)[1])
            answer = route.fetch(url=route.request.url.replace(f"offset={start}", "offset=0"))
            found = answer.json()
            row = found["classes"][0]
            rows = [
                {**row, "id": f"{n}-x", "name": f"class {n}", "order": n}
                for n in range(start, min(start + 60, 1000))
            ]
            route.fulfill(
                response=answer, json={**found, "total": 1000, "found": 1000, "classes": rows}
            )

        page.page.route("**/v1/classes?*", thousand)
        page.open("classes")
        page.page.get_by_text("1,000 classes").wait_for()
        rows = page.page.locator("#classes-list > li")
        for there in (60, 120):
            assert rows.count() < 1000
            page.page.locator("#classes-more").scroll_into_view_if_needed()
            rows.nth(there).wait_for(state="attached")
        page.shoot("thousand")
        page.check()
        page.context.close()
