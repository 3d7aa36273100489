"""Whatever is sent, the answer is no mistake of the service's own."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from app.clients import client_of, png
from model.photos import photo

FUZZ = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def opened(fitted, tmp_path_factory):
    import shutil

    folder = tmp_path_factory.mktemp("fuzz") / "birds"
    shutil.copytree(fitted.path, folder)
    with client_of(folder, limits={"pixels": 1_000_000, "file": 1 << 20}) as client:
        yield client


def fine(answer) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"]


def written(kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(photo(1, 1)).save(out, kind)
    return out.getvalue()


FILES = [written(kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")]


@st.composite
def damaged(draw) -> bytes:
    """An image file with some bytes changed, cut out or put in."""
    data = bytearray(draw(st.sampled_from(FILES)))
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, len(data) - 1))
        cut = draw(st.integers(0, 4))
        data[place : place + cut] = draw(st.binary(max_size=4))
        if not data:
            break
    return bytes(data)


@FUZZ
@given(data=st.one_of(damaged(), st.binary(max_size=200)), name=st.text(max_size=30))
def test_photos(opened, data, name):
    quoted = name.encode("utf-8", "replace").decode() or "x"
    fine(opened.post("/v1/predict", files={"images": (quoted, data)}))


PARTS = st.lists(
    st.sampled_from(
        [
            b"--b\r\n",
            b"--b--\r\n",
            b"\r\n",
            b'Content-Disposition: form-data; name="images"; filename="a.png"\r\n',
            b'Content-Disposition: form-data; name="name"\r\n',
            b'Content-Disposition: form-data; name="images"; filename="../../x"\r\n',
            b"Content-Disposition: form-data\r\n",
            b"Content-Type: image/png\r\n",
            b"Content-Transfer-Encoding: base64\r\n",
            png(1, 1),
            b"\x00\xff",
            b"x" * 3000,
        ]
    ),
    max_size=12,
)


@FUZZ
@given(parts=PARTS, path=st.sampled_from(["/v1/predict", "/v1/classes", "/v1/evaluate"]))
def test_forms(opened, parts, path):
    kind = {"content-type": "multipart/form-data; boundary=b"}
    fine(opened.post(path, content=b"".join(parts), headers=kind))


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["images", "name", "id", "data", "label", "x"]), inner, max_size=4
        ),
    ),
    max_leaves=8,
)


@FUZZ
@given(body=VALUES, path=st.sampled_from(["/v1/predict", "/v1/classes", "/v1/evaluate"]))
def test_json(opened, body, path):
    kind = {"content-type": "application/json"}
    fine(opened.post(path, content=json.dumps(body).encode("utf-8", "replace"), headers=kind))
