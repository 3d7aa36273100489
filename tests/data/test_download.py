"""Fetching sets from a server, and unpacking what came."""

from __future__ import annotations

import hashlib
import io
import socket
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cala.data import download as module
from cala.data.download import Archive, download, published_archive, unpack
from cala.data.sets import open_images
from cala.errors import InputError
from data.tiny_sets import cifar_archive, cub200
from refusals import refused


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def publish(monkeypatch, url, md5, unpacked=""):
    monkeypatch.setattr(module, "published_archive", lambda name: Archive(url, md5, unpacked))


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def test_the_published_places():
    cifar, cub = published_archive("cifar100"), published_archive("cub200")
    assert cifar.file == "cifar-100-python.tar.gz"
    assert cifar.md5 == "eb9058c3a382ffc7106e4002c42a8d85"
    assert (cub.file, cub.unpacked) == ("CUB_200_2011.tgz", "CUB_200_2011")
    assert cub.md5 == "97eceeb196236b17998738112f37df78"


def test_sets_that_may_not_be_handed_on(tmp_path):
    with refused("mini_imagenet", code="not_public") as caught:
        download("mini_imagenet", tmp_path)
    assert "images/ with split" in caught.value.fix
    with refused("folder", code="not_public"):
        download("folder", tmp_path)
    with refused("'cifar10'", code="unknown_name") as caught:
        download("cifar10", tmp_path)
    assert "'cifar100'?" in caught.value.fix


def test_an_archive_that_is_read_as_it_is(server, tmp_path, monkeypatch):
    folder, url = server
    archive = cifar_archive(folder)
    publish(monkeypatch, f"{url}/{archive.name}", md5(archive))
    place = download("cifar100", tmp_path / "new" / "target")
    assert open_images(place).name == "cifar100"
    archive.unlink()
    assert download("cifar100", tmp_path / "new" / "target") == place  # nothing is fetched again


def test_an_archive_that_is_unpacked(server, tmp_path, monkeypatch):
    folder, url = server
    cub200(folder)
    archive = folder / "CUB_200_2011.tgz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder / "CUB_200_2011", "CUB_200_2011")
        packed.addfile(tarfile.TarInfo("attributes.txt"), io.BytesIO())
    publish(monkeypatch, f"{url}/{archive.name}", md5(archive), "CUB_200_2011")
    target = tmp_path / "target"
    place = download("cub200", target)
    assert len(open_images(place).train) == 12
    assert sorted(p.name for p in target.iterdir()) == ["CUB_200_2011", "CUB_200_2011.tgz"]
    assert download("cub200", target) == place


def test_a_wrong_checksum_is_refused(server, tmp_path, monkeypatch):
    folder, url = server
    archive = cifar_archive(folder)
    publish(monkeypatch, f"{url}/{archive.name}", "0" * 32)
    with refused("hash", code="not_downloaded"):
        download("cifar100", tmp_path / "target")
    assert list((tmp_path / "target").iterdir()) == []


def test_without_a_network_the_file_and_the_place_are_named(tmp_path, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    publish(monkeypatch, f"http://127.0.0.1:{port}/cifar-100-python.tar.gz", "0" * 32)
    with pytest.raises(InputError) as caught:
        download("cifar100", tmp_path / "target")
    assert (
        f"download http://127.0.0.1:{port}/cifar-100-python.tar.gz on another" in caught.value.fix
    )
    assert f"put it at {tmp_path / 'target' / 'cifar-100-python.tar.gz'}" in caught.value.fix
    assert str(caught.value).isprintable()


def packed(path, *members):
    with tarfile.open(path, "w") as archive:
        for name, kind, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            content = b"hello" if kind == tarfile.REGTYPE else b""
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    ("member", "code"),
    [
        (("../out.txt", tarfile.REGTYPE, ""), "outside"),
        (("a/../../out.txt", tarfile.REGTYPE, ""), "outside"),
        (("/tmp/cala-out.txt", tarfile.REGTYPE, ""), "outside"),
        (("C:\\out.txt", tarfile.REGTYPE, ""), "outside"),
        (("link", tarfile.SYMTYPE, "/etc"), "not_a_file"),
        (("link", tarfile.LNKTYPE, "fine.txt"), "not_a_file"),
        (("pipe", tarfile.FIFOTYPE, ""), "not_a_file"),
        (("device", tarfile.CHRTYPE, ""), "not_a_file"),
    ],
)
def test_archives_that_reach_outside_are_refused(tmp_path, member, code):
    archive = packed(tmp_path / "a.tar", ("fine.txt", tarfile.REGTYPE, ""), member)
    with refused(code=code):
        unpack(archive, tmp_path / "target")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar"]


def test_unpacking_ends_whole_or_not_at_all(tmp_path):
    archive = packed(tmp_path / "a.tar", ("a/b.txt", tarfile.REGTYPE, ""))
    unpack(archive, tmp_path / "target")
    assert (tmp_path / "target" / "a" / "b.txt").read_text() == "hello"
    with refused(code="exists"):
        unpack(archive, tmp_path / "target")
    with refused(code="too_large"):
        unpack(archive, tmp_path / "small", max_bytes=4)
    archive.write_bytes(archive.read_bytes()[:514])
    with refused(code="damaged_file"):
        unpack(archive, tmp_path / "cut")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar", "target"]
