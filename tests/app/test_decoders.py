"""Photos that hang, crash or fill the memory of their decoder; none of this reaches the service."""

from __future__ import annotations

import io
import signal
import sys
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from app.clients import form, png, problem
from app.servers import start
from cala.app import decoders, photo_encoder
from cala.app.decoders import Decoders
from cala.data.decoding import ImageError, decode_bytes
from cala.encoders.transform import Transform
from cala.model.thumbnails import small_copy
from refusals import refused
from waiting import GENEROUS, wait_for

ODD = """
import os, time
from cala.app import decode_worker as worker
real = worker.decode_bytes
def decode(data, name, *more):
    if name == "hangs":
        worker._allow(0.1)
        while True:
            pass
    if name == "crashes":
        os.abort()
    if name == "prints":
        os.write(1, b"a line of the decoder's own" + bytes([10]))
    return real(data, name, *more)
worker.decode_bytes, worker.LARGE, worker.MEMORY = decode, 10_000, 400 << 20
worker.main()
"""


@pytest.fixture
def odd(monkeypatch):
    """Decoders whose worker fails for some names, and has little memory."""
    monkeypatch.setattr(decoders, "WORKER", (sys.executable, "-c", ODD))
    made = Decoders()
    yield made
    made.kill()


def image(width: int, height: int) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (width, height), (9, 80, 200)).save(written, "PNG")
    return written.getvalue()


def test_the_same_pixels_as_in_this_process():
    data, transform = png(3, 1, 90), Transform(24, 32)
    ready, small = Decoders().decode(data, "a", 10**6, transform, True)
    pixels = decode_bytes(data, "a")
    assert (ready == transform.prepare(pixels)).all()
    assert small == small_copy(pixels)
    with refused("8,099", kind=ImageError, code="bomb"):
        Decoders().decode(data, "a", 90 * 90 - 1)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers of POSIX")
@pytest.mark.parametrize("name", ["hangs", "crashes"])
def test_the_next_photo_is_decoded(odd, name):
    for _ in range(2):
        with refused(name, kind=ImageError, code="bomb"):
            odd.decode(png(1, 1), name, 10**6)
        ready, _ = odd.decode(png(1, 1), "prints", 10**6, Transform(8, 8))
        assert ready.shape == (8, 8, 3)
    assert len(odd._all) == 1


def test_a_photo_that_takes_too_much_memory(odd):
    pytest.importorskip("resource")
    with refused("memory", kind=ImageError, code="bomb"):
        odd.decode(image(12_000, 4_000), "a", 10**8)
    assert odd.decode(png(1, 1), "b", 10**6, Transform(8, 8))[0].shape == (8, 8, 3)


def test_large_photos_are_decoded_one_at_a_time(odd):
    done = threading.Event()

    def decode() -> None:
        odd.decode(image(101, 100), "large", 10**6)
        done.set()

    with odd._one_large:
        large = threading.Thread(target=decode)
        large.start()
        wait_for(lambda: len(odd._all) == 1)
        odd.decode(image(100, 100), "not so large", 10**6)
        assert not done.is_set()
    large.join(GENEROUS)
    assert done.is_set()


def test_the_service_says_so_and_goes_on(client, monkeypatch, odd):
    monkeypatch.setattr(photo_encoder, "DECODER_PROCESSES", odd)
    crashing = {"images": ("crashes", png(1, 50))}
    problem(client.post("/v1/predict", files=crashing), 422, "bad_image", "images[0]")
    assert client.post("/v1/predict", files=form(1, range(2))).status_code == 200


@pytest.mark.system
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_decoders_end_with_the_service(folder, number):
    process, url = start(folder)
    answer = httpx.post(f"{url}/v1/predict", files=form(1, range(4)), timeout=GENEROUS)
    assert answer.status_code == 200
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    children += [
        child
        for task in Path(f"/proc/{process.pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    assert children
    process.send_signal(number)
    process.wait(GENEROUS)
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def test_wide_images_are_converted_in_strips(monkeypatch):
    kinds = {"RGBA": None, "LA": None, "P": 3, "RGB": (9, 80, 200), "1": None, "CMYK": None}
    rng = np.random.default_rng(0)
    for mode, transparent in kinds.items():
        drawn = Image.fromarray(rng.integers(0, 255, (37, 53, 4), dtype=np.uint8), "RGBA")
        written = io.BytesIO()
        kind = "TIFF" if mode == "CMYK" else "PNG"
        more = {} if transparent is None else {"transparency": transparent}
        base = drawn if mode in ("RGBA", "LA") else drawn.convert("RGB")
        base.convert(mode).save(written, kind, **more)
        monkeypatch.setattr("cala.data.decoding.STRIP", 10**9)
        whole = decode_bytes(written.getvalue(), "a")
        monkeypatch.setattr("cala.data.decoding.STRIP", 100)
        assert (decode_bytes(written.getvalue(), "a") == whole).all(), mode


def test_sides_that_are_too_long():
    with refused("65,535", kind=ImageError, code="bomb"):
        decode_bytes(image(1, 65_536), "a")
    assert decode_bytes(image(1, 65_535), "a").shape == (65_535, 1, 3)
