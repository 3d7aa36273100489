"""Which files are photos: by their first bytes, and what to say about the others."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module, util
from pathlib import Path, PurePath
from typing import NamedTuple

from PIL import features

from cala.files import counted, preview

# Other decoders of Pillow start programs or read further files, so the list is closed.
PLUGINS = {"JPEG": "Jpeg", "PNG": "Png", "WEBP": "WebP", "BMP": "Bmp", "GIF": "Gif", "TIFF": "Tiff"}
if features.check("jpg_2000"):
    PLUGINS["JPEG2000"] = "Jpeg2K"
if "avif" in features.modules and features.check("avif"):  # since Pillow 11.3, if built with it
    PLUGINS["AVIF"] = "Avif"
for _plugin in PLUGINS.values():
    # The library loads decoders when the first file is opened, which is not safe in threads.
    _module = import_module(f"PIL.{_plugin}ImagePlugin")
    if _plugin == "Avif":
        vars(_module)["DEFAULT_MAX_THREADS"] = 1  # images are decoded in threads, each by one
HAS_HEIF = util.find_spec("pillow_heif") is not None
#: Formats that can be read here.
FORMATS = (*PLUGINS, *(("HEIF",) if HAS_HEIF else ()))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Files that end so are taken for photos without a look at their content.
SUFFIXES = _words(
    ".jpg .jpeg .jpe .jfif .png .webp .bmp .gif .tif .tiff .jp2 .j2k .jpf .jpx .avif .heic .heif "
    ".hif"
)
VIDEOS = _words(".mov .mp4 .m4v .avi .mkv .webm .mts .m2ts .mpg .mpeg .3gp .wmv .flv .insv")
RAW = _words(".cr2 .cr3 .nef .arw .dng .orf .rw2 .raf .pef .srw .raw")  # most look like TIFFs
#: Names, in lower case, that systems put beside photos; hidden files are left out as well.
SYSTEM = _words(
    "@eadir @__thumb @recycle #recycle #snapshot __macosx thumbs.db ehthumbs.db desktop.ini "
    "$recycle.bin"
)
HEAD_BYTES = 64  # bytes that tell a format
_STARTS = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "TIFF",
    b"MM\0+": "TIFF",
    b"\0\0\0\x0cjP  \r\n\x87\n": "JPEG2000",
    b"\xff\x4f\xff\x51": "JPEG2000",
    b"\x1a\x45\xdf\xa3": "video",
    b"\0\0\1\xba": "video",
    b"\0\0\1\xb3": "video",
    b"FLV\1": "video",
    b"\x30\x26\xb2\x75\x8e\x66\xcf\x11": "video",
}
_HEIF_BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))


class LeftOut(NamedTuple):
    """A file beside photos that is not used; `why` is a key of `REASONS`."""

    path: Path
    why: str


#: What a file that is left out is, one and several, and what to do about it.
REASONS = {
    "video": ("video", "videos", "videos are not read, only photos"),
    "raw": ("camera raw file", "camera raw files", "export them as JPEG"),
    "folder": ("folder", "folders", "photos must be directly in the folder of their class"),
    "unreadable": ("file", "files", "cannot be opened"),
    "other": ("file", "files", "not photos"),
}


def sniff(head: bytes) -> str:
    """Format of a file by its first bytes: one of Pillow's names, "HEIF", "video", or "".

    >>> sniff(b"\\xff\\xd8\\xff\\xe0"), sniff(b"\\0\\0\\0\\x18ftypheic"), sniff(b"hello")
    ('JPEG', 'HEIF', '')
    """
    for start, found in _STARTS.items():
        if head.startswith(start):
            return found
    if head.startswith(b"RIFF"):
        return {b"WEBP": "WEBP", b"AVI ": "video"}.get(head[8:12], "")
    if head[4:8] == b"ftyp":
        end = min(int.from_bytes(head[:4], "big"), len(head))
        brands = {head[8:12], *(head[at : at + 4] for at in range(16, end, 4))}
        if brands & {b"avif", b"avis"}:
            return "AVIF"
        return "HEIF" if brands & _HEIF_BRANDS else "video"
    return "video" if head[4:8] in (b"moov", b"mdat", b"wide") else ""


def is_system(name: str) -> bool:
    """Whether a name is hidden, or one that an operating system or a disk station adds.

    >>> is_system(".DS_Store"), is_system("@eaDir"), is_system("robin.jpg")
    (True, True, False)
    """
    return name.startswith(".") or name.lower() in SYSTEM


def why_left_out(path: Path) -> str | None:
    """A key of `REASONS` for a file that is not a photo; None for a photo.

    Files with the suffix of a photo, broken links too, count as photos: errors name them later.
    """
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return None
    if suffix in RAW:
        return "raw"
    try:
        if not path.is_file():  # a pipe would block, a broken link holds nothing
            return "other"
        with path.open("rb") as file:
            found = sniff(file.read(HEAD_BYTES))
    except OSError:
        return "unreadable"
    if found == "video" or (not found and suffix in VIDEOS):
        return "video"
    return None if found else "other"


def cannot_read(kind: str) -> str:
    """Why a file of a kind that `sniff` or `why_left_out` gives cannot be decoded here."""
    return {
        "video": "a video; only photos are read",
        "raw": "a camera raw file; export it as JPEG",
        "HEIF": "a HEIC photo, which needs the package pillow-heif",
        "AVIF": "an AVIF photo, which needs Pillow 11.3 or newer",
        "JPEG2000": "a JPEG 2000 photo, which this build of Pillow cannot read",
    }.get(kind, "not an image of a known format, or damaged")


def left_out_note(files: Sequence[LeftOut], photos: int) -> str:
    """One sentence about files that are not used, beside the number of photos that are.

    >>> left_out_note([LeftOut(Path("a.MOV"), "video"), LeftOut(Path("b.txt"), "other")], 4)
    'left out 2 of 6 files: 1 video (a.MOV; videos are not read, only photos), 1 file (b.txt; ...)'
    """
    parts = []
    for why, (one, several, remedy) in REASONS.items():
        own = [PurePath(*file.path.parts[-2:]) for file in files if file.why == why]
        if own:
            count = counted(len(own), one) if len(own) == 1 else f"{len(own):,} {several}"
            parts.append(f"{count} ({preview(map(str, own), 2)}; {remedy})")
    return f"left out {len(files):,} of {counted(len(files) + photos, 'file')}: {', '.join(parts)}"
