"""A pickle may describe arrays, and may do nothing."""

from __future__ import annotations

import io
import os
import pickle
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cala.data.cifar100 import RestrictedUnpickler, load_pickle
from cala.data.sets import open_images
from cala.errors import InputError
from data.tiny_sets import cifar100
from refusals import refused

GOOD = {b"data": np.arange(12, dtype=np.uint8).reshape(3, 4), b"labels": [1, 2], b"empty": b""}


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_lists_and_bytes_are_read(protocol):
    content = load_pickle(pickle.dumps(GOOD, protocol=protocol), "train")
    assert np.array_equal(content["data"], GOOD[b"data"])
    assert (content["labels"], content["empty"]) == ([1, 2], b"")
    fortran = {b"data": np.asfortranarray(GOOD[b"data"])}
    assert np.array_equal(load_pickle(pickle.dumps(fortran, 2), "train")["data"], GOOD[b"data"])


def test_a_pickle_of_the_old_interpreter():
    """The official files were written by Python 2: byte strings, and an older module path."""
    old = (
        b"\x80\x02}q\x01U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        b"K\x00\x85U\x01b\x87R(K\x01K\x01K\x03\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x03abctbs."
    )
    assert load_pickle(old, "train")["data"].tolist() == [[97, 98, 99]]


@pytest.mark.parametrize(
    ("hostile", "name"),
    [
        (lambda mark: Call(os.system, f"touch '{mark}'"), f"the name {os.name}.system"),
        (lambda mark: Call(eval, f"open('{mark}', 'w')"), "the name __builtin__.eval"),
        (lambda mark: Call(open, str(mark), "w"), "the name io.open"),
        (lambda mark: Call(mark.touch), "the name "),
        (Call(bytes, 10**12), "a call of bytes"),
        (Call(np.ndarray, (10**12,)), "a call of ndarray"),
        (Call(np.load, "file"), "the name numpy"),
        (np.array([{"a": 1}], dtype=object), "a call of dtype"),
        (np.zeros(2, dtype=[("a", "u1")]), "a call of dtype"),
    ],
)
def test_everything_else_is_refused_by_name(tmp_path, hostile, name):
    mark = tmp_path / "mark"
    content = hostile(mark) if callable(hostile) else hostile
    raw = pickle.dumps({b"data": content}, protocol=2)
    with refused(name, code="refused"):
        load_pickle(raw, "train")
    assert not mark.exists()


def test_a_hostile_archive_runs_nothing(tmp_path):
    mark = tmp_path / "mark"
    cifar100(tmp_path / "set", train=Call(os.system, f"touch '{mark}'"))
    with refused("train", f"{os.name}.system", code="refused"):
        open_images(tmp_path / "set")
    assert not mark.exists()


def test_the_stand_ins_cannot_be_changed():
    """BUILD on a name from the list: would set attributes of a shared object."""
    change = b"\x80\x02c_codecs\nencode\nN}X\x01\x00\x00\x00aK\x01s\x86b."
    with pytest.raises(InputError):
        load_pickle(change, "train")
    name = RestrictedUnpickler(io.BytesIO(change)).load()
    assert (name.name, name("a", "latin1")) == ("encode", b"a")
    array = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nK\x01K\x00\x85U\x01b\x87R."
    with refused("a call of _reconstruct", code="refused"):
        load_pickle(array, "train")


@given(st.binary(max_size=60))
def test_any_bytes_end_in_a_dictionary_or_a_named_error(content):
    with suppress(InputError):
        assert isinstance(load_pickle(content, "train"), dict)


@given(st.data())
def test_any_change_of_a_good_pickle_is_survived(data):
    content = bytearray(pickle.dumps(GOOD, protocol=2))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InputError):
        load_pickle(bytes(content), "train")
