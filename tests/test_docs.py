"""Documents point at things that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def resolves(dotted: str) -> bool:
    """Whether a dotted name leads to a module or to something in one."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for name in parts[end:]:
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    return False


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_names_in_code_style_exist(path):
    text = path.read_text("utf-8")
    names = re.findall(r"`(cala(?:\.\w+)+)`", text)
    assert [name for name in names if not resolves(name)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_files_and_links_exist(path):
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.S)
    links = [x for x in re.findall(r"\]\(([^)]+)\)", text) if "://" not in x]
    files = re.findall(r"`((?:src|tests|benchmarks|docs|examples)/[\w./-]+\.\w+)", text)
    missing = [x for x in links if not leads_somewhere(path, x)]
    missing += [x for x in files if not (ROOT / x).exists()]
    assert missing == []


def leads_somewhere(page: Path, link: str) -> bool:
    """Whether the file of a link exists and has its anchor, as hosts of repositories name them."""
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
    headings = re.findall(r"^#+ +(.+)$", text, flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_equation_is_on_the_map():
    text = (ROOT / "docs" / "paper-map.md").read_text("utf-8")
    for number in range(1, 10):
        assert f"| Eq. {number}, " in text
    for part in ("Eq. 10", "Algorithm 1", "tabminiFNR", "tabminicom", "tabcifargamma"):
        assert part in text
    for part in ("tabminibeta", "figcurve", "figlogit", "figcm", "figtsne", "figsim", "fig1"):
        assert part in text


def test_every_encoder_is_on_its_page():
    from cala.encoders import ARCHITECTURES
    from cala.encoders.registry import ENCODERS, LOADERS

    text = (ROOT / "docs" / "encoders.md").read_text("utf-8")
    # Other tests may have registered architectures of their own in this process.
    own = [n for n in ARCHITECTURES if ARCHITECTURES[n].__module__.startswith("cala.")]
    wanted = [*(f"`{name}`" for name in (*ENCODERS, *own)), *(f"`{name}:" for name in LOADERS)]
    assert [name for name in wanted if name not in text] == []


def test_six_photos_of_a_class_are_enough(tmp_path):
    """What docs/bench-images.md says: 5 shots and 1 that tests, of 6 photos; 2 that train, of 3."""
    from cala.data.sets import open_images
    from data.tiny_sets import plain_folder

    for photos, train in ((6, 5), (5, 4), (3, 2)):
        images = open_images(plain_folder(tmp_path / str(photos), photos), holdout=0.2)
        assert (len(images.train), len(images.test)) == (3 * train, 3)


def test_readme_python_runs():
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert blocks, "README shows Python"
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("page", ["embeddings.md", "estimator.md", "foundation-models.md"])
def test_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / page).read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})
    assert (tmp_path / "my.safetensors").exists() == (page == "embeddings.md")


@pytest.fixture
def documents(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import documents

    return documents


def test_numbers_are_those_of_the_run_summaries(documents):
    for name in documents.DOCUMENTS:
        text = (ROOT / name).read_text("utf-8")
        assert documents.filled(text) == text, "run python benchmarks/documents.py"
        found = [*documents.MARKED.finditer(text), *documents.VALUE.finditer(text)]
        for some in {found[0][0], found[-1][0]}:
            other = re.sub(r"(?<=[ >])\d+\.\d", "0.0", some)
            assert other != some
            assert documents.filled(other) == some


@pytest.mark.parametrize("name", ["README.md", "REPRODUCIBILITY.md"])
def test_no_interval_is_typed(documents, name):
    text = (ROOT / name).read_text("utf-8")
    rest = documents.VALUE.sub("", documents.MARKED.sub("", text))
    assert re.findall(r"\d [±≈] \d.*", rest) == []


def test_a_new_data_set_is_one_entry(documents, monkeypatch, tmp_path):
    """A summary of `cala run` as it is; what is not there gets no row and no column."""
    for name in ("new", "new-whitened"):
        (tmp_path / f"{name}.json").write_bytes((documents.RESULTS / "cifar100.json").read_bytes())
    monkeypatch.setattr(documents, "RESULTS", tmp_path)
    documents.summary.cache_clear()
    lines = documents.measured("mini_imagenet", "new", "new-whitened").markdown().splitlines()
    documents.summary.cache_clear()
    rows = [line.split(" | ") for line in lines]
    methods = ("nearest mean", "LA", "CALA")
    labels = [f"| {m}, {metric}" for metric in ("cosine", "whitened") for m in methods]
    assert [row[0] for row in rows[2:]] == [*labels, "| `cala-plus`"]
    assert rows[0][1] == "published, last / avg"
    assert {len(row) for row in rows if len(row) > 1} == {len(documents.MEASURED) + 2}
    assert rows[4][1].startswith("57.75 / 68.75")
