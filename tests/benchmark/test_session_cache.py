"""Sessions that trained an encoder, on disk: found again, or played again."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from cala.benchmark.encoder_sessions import SessionCache, SessionLogits

KEY = ("icarl-star", "random:0", 3)
COURSE = SessionLogits(
    [np.eye(2, dtype=np.float32), np.ones((3, 4), np.float32)], [0.5], 0.25, 7, 99
)


def test_what_is_kept_is_found(tmp_path):
    SessionCache(tmp_path / "courses", full=True).keep(*KEY, COURSE)
    found = SessionCache(tmp_path / "courses", full=True).find(*KEY)
    assert (found.seconds, found.encoding, found.encoded, found.bytes) == ([0.5], 0.25, 7, 99)
    for ours, theirs in zip(found.logits, COURSE.logits, strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)
    assert SessionCache(tmp_path / "courses", full=True).find("icarl-star", "random:0", 4) is None


@pytest.mark.parametrize("damage", ["old", "cut", "flipped"])
def test_what_cannot_be_trusted_is_played_again(tmp_path, damage):
    courses = SessionCache(tmp_path, full=True)
    courses.keep(*KEY, COURSE)
    (path,) = tmp_path.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    if damage == "old":
        meta = {"schema": 1, "sessions": 1, "seconds": [], "encoding": 0, "encoded": 0, "bytes": 0}
        save_file({"logits.0": np.eye(2)}, path, metadata={"course": json.dumps(meta)})
    elif damage == "cut":
        path.write_bytes(content[:-1])
    else:
        content[-1] ^= 1
        path.write_bytes(content)
    assert courses.find(*KEY) is None
