"""The embedding cache: shared, mended, never wrong."""

from __future__ import annotations

import hashlib
import multiprocessing
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cala.data import cache as data_cache
from cala.data.cache import RowCache, cache_contents, cache_folder, clear_cache
from cala.data.decoding import ImageError
from cala.data.images import FilePixels, ImageSplit
from cala.encoders.embed import EmbeddingCache, embed
from encoders.tiny import counting_encoder, noise_set
from refusals import warned
from waiting import GENEROUS


def digest(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def database() -> Path:
    return cache_folder() / "cache.sqlite"


def execute(statement, *values):
    with closing(sqlite3.connect(database(), isolation_level=None)) as found:
        return found.execute(statement, values).fetchall()


def put(cache, numbers):
    cache.put([digest(n) for n in numbers], np.array([[n] * 5 for n in numbers], np.float32))


def test_what_was_put_is_found_by_another_reader():
    writer, reader = EmbeddingCache(counting_encoder()), EmbeddingCache(counting_encoder())
    assert not reader.find([digest(3)])[1].any()
    put(writer, range(10))
    found, there = reader.find([digest(3), digest(99), digest(7), digest(3)])
    assert there.tolist() == [True, False, True, True]
    assert found[:, 0].tolist() == [3, 0, 7, 3]
    assert execute("PRAGMA journal_mode") == [("wal",)]


def test_many_rows_are_found(monkeypatch):
    monkeypatch.setattr(data_cache, "_KEYS", 7)
    cache = EmbeddingCache(counting_encoder())
    put(cache, range(50))
    found, there = cache.find([digest(n) for n in range(60)])
    assert there.sum() == 50
    assert found[:50, 4].tolist() == list(range(50))


def test_encoders_and_views_are_kept_apart():
    put(EmbeddingCache(counting_encoder()), range(3))
    for other in (EmbeddingCache(counting_encoder(), "flip"), EmbeddingCache(counting_encoder(1))):
        assert not other.find([digest(1)])[1].any()


def test_no_wrong_byte_gives_a_wrong_embedding():
    """Whatever byte of the file is changed: a row is right, or it is not known."""
    cache, digests = EmbeddingCache(counting_encoder()), [digest(n) for n in range(40)]
    put(cache, range(40))
    content = database().read_bytes()
    rng = np.random.default_rng(0)
    lost = 0
    for place in [*range(0, 110, 5), *rng.integers(0, len(content), 150).tolist()]:
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        database().write_bytes(changed)
        found, there = cache.find(digests)
        lost += int((~there).sum())
        np.testing.assert_array_equal(found[there, 0], np.flatnonzero(there), f"byte {place}")
        for left in database().parent.glob("cache.sqlite*"):
            left.unlink()
    assert lost


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE embeddings SET row = zeroblob(20)",
        "UPDATE embeddings SET seal = zeroblob(16)",
        "UPDATE embeddings SET row = 'text'",
        "UPDATE embeddings SET key = zeroblob(32)",
        "DROP TABLE embeddings",
        "PRAGMA user_version = 77",
    ],
)
def test_rows_that_do_not_fit_are_encoded_again(change):
    images, encoder = noise_set([1, 0], [1, 1]), counting_encoder()
    before = embed(images.train, encoder)
    execute(change)
    np.testing.assert_array_equal(embed(images.train, encoder), before)
    assert encoder.forward.images == 2
    np.testing.assert_array_equal(embed(images.train, encoder), before)
    assert encoder.forward.images == 2, "what was damaged is whole again"


def test_two_rows_exchanged_are_not_used():
    cache = EmbeddingCache(counting_encoder())
    put(cache, range(2))
    (one, two) = execute("SELECT row, seal FROM embeddings")
    execute("UPDATE embeddings SET row = ?, seal = ? WHERE row = ?", b"other", b"", one[0])
    execute("UPDATE embeddings SET row = ?, seal = ? WHERE row = ?", *one, two[0])
    execute("UPDATE embeddings SET row = ?, seal = ? WHERE row = ?", *two, b"other")
    assert not cache.find([digest(0), digest(1)])[1].any()


@pytest.mark.parametrize("damage", ["cut", "empty", "other", "header"])
def test_a_damaged_database_is_begun_again(damage):
    images, encoder = noise_set([4, 4], [1, 1]), counting_encoder()
    before = embed(images.train, encoder)
    content = database().read_bytes()
    ruined = {
        "cut": content[: len(content) // 2], "empty": b"", "other": b"something else entirely" * 99,
        "header": b"\0" * 100 + content[100:],
    }  # fmt: skip
    database().write_bytes(ruined[damage])
    np.testing.assert_array_equal(embed(images.train, encoder), before)
    assert encoder.forward.images == 16
    np.testing.assert_array_equal(embed(images.train, encoder), before)
    assert encoder.forward.images == 16


def test_without_a_cache_it_is_only_slower(tmp_path, monkeypatch):
    images, encoder = noise_set([4, 4], [1, 1]), counting_encoder()
    before = embed(images.train, encoder)
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("CALA_CACHE", str(file))
    with warned("no_cache", file):
        np.testing.assert_array_equal(embed(images.train, encoder), before)
    assert encoder.forward.images == 16


def test_a_full_disk_costs_time_not_the_result(monkeypatch):
    images, encoder = noise_set([4, 4], [1, 1]), counting_encoder()
    connect = sqlite3.connect

    def full(*arguments, **options):
        found = connect(*arguments, **options)
        found.execute("PRAGMA max_page_count = 1")
        return found

    expected = counting_encoder()(images.train.pixels.array)
    monkeypatch.setattr("sqlite3.connect", full)
    with warned("no_cache"):
        np.testing.assert_allclose(embed(images.train, encoder), expected, rtol=1e-5)


def test_contents_and_clearing():
    put(EmbeddingCache(counting_encoder()), range(10))
    (old := cache_folder("embeddings", "of-an-earlier-version") / "segment.npy").touch()
    assert cache_contents() == {"embeddings": (11, 200)}
    clear_cache("embeddings")
    assert cache_contents() == {}
    assert not old.exists()
    put(EmbeddingCache(counting_encoder()), range(3))
    assert RowCache("embeddings").size() == (3, 60)


def test_a_photo_that_changes_while_it_is_encoded_does_not_poison_the_cache(tmp_path):
    rng = np.random.default_rng(0)

    def photo(name):
        path = tmp_path / f"{name}.png"
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
        return path

    def split(path):
        return ImageSplit(np.zeros(1, np.int64), (path.name,), FilePixels((path,)))

    one, two = photo("one"), photo("two")
    a, b = one.read_bytes(), two.read_bytes()
    right, encoder = embed(split(one), counting_encoder()), counting_encoder()
    clear_cache("embeddings")
    changing = split(one)
    changing.digests()
    one.write_bytes(b)  # after its digest was taken, before its pixels are read
    with pytest.raises(ImageError) as caught:
        embed_known(changing, encoder, a)
    assert caught.value.code == "image_changed"
    assert RowCache("embeddings").size() == (0, 0)
    one.write_bytes(a)
    np.testing.assert_array_equal(embed(split(one), encoder), right)


def embed_known(split, encoder, content):
    """`embed` of a file that changes after its digest was looked up."""
    known = hashlib.sha256(content).hexdigest()
    assert list(split.pixels.known.values()) == [known]
    pixels = FilePixels(split.pixels.paths, split.pixels.max_pixels, split.pixels.known)
    object.__setattr__(pixels, "digests", lambda rows: [known])
    return embed(ImageSplit(split.labels, split.names, pixels), encoder)


def _encode(queue):
    encoder = counting_encoder()
    found = embed(noise_set([200, 200], [1, 1]).train, encoder)
    queue.put((encoder.forward.images, float(found.sum())))


@pytest.mark.system
def test_two_processes_share_the_work():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=_encode, args=(queue,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    results = [queue.get(timeout=GENEROUS) for _ in workers]
    for worker in workers:
        worker.join()
    assert sum(images for images, _ in results) == 400
    assert results[0][1] == results[1][1]
