"""The embedding cache: shared, mended, never wrong."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import zlib

import numpy as np
import pytest

from cala.encoders.cache import MANY, EmbeddingCache
from cala.encoders.embed import embed
from cala.errors import InputError
from encoders.tiny import counting_encoder, noise_set
from waiting import GENEROUS


def digest(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def segments(cache):
    return sorted(cache.folder.glob("*.npy"))


def put(cache, numbers):
    cache.put([digest(n) for n in numbers], np.array([[n] * 5 for n in numbers], np.float32))


def test_what_was_put_is_found_by_another_reader():
    writer, reader = EmbeddingCache(counting_encoder()), EmbeddingCache(counting_encoder())
    assert len(reader) == 0
    put(writer, range(10))
    found, there = reader.find([digest(3), digest(99), digest(7)])
    assert there.tolist() == [True, False, True]
    assert found[:, 0].tolist() == [3, 0, 7]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other"])
def test_a_damaged_segment_is_dropped(damage):
    cache = EmbeddingCache(counting_encoder())
    put(cache, range(5))
    put(cache, range(5, 10))
    path = segments(cache)[0]
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-3] ^= 1
    elif damage == "cut":
        content = content[:-7]
    elif damage == "empty":
        content = bytearray()
    else:
        content = bytearray(b"something else entirely")
    path.write_bytes(content)
    fresh = EmbeddingCache(counting_encoder())
    _, there = fresh.find([digest(n) for n in range(10)])
    assert there.sum() == 5
    assert len(segments(fresh)) == 1


@pytest.mark.parametrize("shape", [(5, 4), (5, 6), (5,), (5, 5, 1)])
def test_a_whole_segment_of_other_records_is_dropped(shape):
    """Its checksum is right, what it holds is not what this encoder gives."""
    cache = EmbeddingCache(counting_encoder())
    kind = np.dtype([("digest", "V32"), ("embedding", "<f4", shape[1:])])
    content = io.BytesIO()
    np.save(content, np.zeros(5, dtype=kind))
    name = f"{'0' * 16}-{zlib.crc32(content.getvalue()):08x}.npy"
    (cache.folder / name).write_bytes(content.getvalue())
    put(cache, range(3))
    assert len(EmbeddingCache(counting_encoder())) == 3
    assert len(segments(cache)) == 1


def test_damage_is_encoded_again():
    images, encoder = noise_set([4, 4], [1, 1]), counting_encoder()
    before = embed(images.train, encoder)
    path = segments(EmbeddingCache(encoder))[0]
    path.write_bytes(path.read_bytes()[:-1])
    np.testing.assert_array_equal(embed(images.train, encoder), before)
    assert encoder.forward.images == 16


def test_many_small_segments_become_one():
    cache = EmbeddingCache(counting_encoder())
    for number in range(MANY + 1):
        put(cache, [number])
    assert len(segments(cache)) == 1
    assert len(EmbeddingCache(counting_encoder())) == MANY + 1
    assert len(cache) == MANY + 1


def test_merged_segments_stay_of_a_fair_size(monkeypatch):
    monkeypatch.setattr("cala.encoders.cache.SMALL", 4)
    cache = EmbeddingCache(counting_encoder())
    for number in range(MANY + 1):
        put(cache, [2 * number, 2 * number + 1])
    assert len(segments(cache)) == 17  # 66 records, four at a time
    found, there = cache.find([digest(n) for n in range(66)])
    assert there.all()
    assert found[:, 0].tolist() == list(range(66))


def test_a_reader_finds_what_another_process_has_merged_meanwhile(monkeypatch):
    writer, reader = EmbeddingCache(counting_encoder()), EmbeddingCache(counting_encoder())
    for number in range(MANY):
        put(writer, [number])
    gather = EmbeddingCache._gather

    def late(self, *arguments):
        if len(segments(writer)) == MANY:
            put(writer, [MANY])  # one too many: all are merged
        gather(self, *arguments)

    monkeypatch.setattr(EmbeddingCache, "_gather", late)
    found, there = reader.find([digest(n) for n in range(MANY)])
    assert len(segments(writer)) == 1
    assert there.all()
    assert found[:, 0].tolist() == list(range(MANY))


def test_a_segment_cut_short_after_it_was_checked_is_dropped():
    cache = EmbeddingCache(counting_encoder())
    put(cache, range(5))
    put(cache, range(5, 10))
    assert len(cache) == 10
    path = segments(cache)[0]
    path.write_bytes(path.read_bytes()[:-7])
    found, there = cache.find([digest(n) for n in range(10)])
    assert there.sum() == 5
    assert (found[~there] == 0).all()
    assert len(segments(cache)) == 1


def test_large_segments_are_read_in_parts(monkeypatch):
    monkeypatch.setattr("cala.encoders.cache.READ", 100)
    cache = EmbeddingCache(counting_encoder())
    put(cache, range(10))
    found, there = cache.find([digest(n) for n in (9, 0, 4, 4)])
    assert there.all()
    assert found[:, 0].tolist() == [9, 0, 4, 4]


def test_a_full_disk_is_said(monkeypatch):
    cache = EmbeddingCache(counting_encoder())

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.save", full)
    with pytest.raises(InputError, match=r"No space left.*CALA_CACHE"):
        put(cache, [1])
    assert not list(cache.folder.glob("*.part"))
    assert not segments(cache)


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
