"""The site: `make docs` builds it from these pages, without a network; a warning is an error."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Any

from cala.version import __version__

project, author = "cala", "The cala authors"
copyright = "2026, The cala authors"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme, html_title = "furo", f"cala {__version__}"
html_show_sourcelink = False
html_static_path, html_css_files = ["_static"], ["site.css"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
nb_execution_mode, nb_execution_timeout = "force", 600
nb_execution_in_temp = nb_execution_raise_on_error = True
nb_output_stderr, nb_render_markdown_format = "remove", "gfm"
napoleon_google_docstring, napoleon_use_ivar = False, True
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order, autodoc_preserve_defaults = "bysource", True
logging.getLogger("traitlets").setLevel(logging.WARNING)  # of the notebooks' kernels
HERE = Path(__file__).parent
#: Pages of the site that are files beside docs/.
BESIDE = {
    "README.md": "index.md",
    "REPRODUCIBILITY.md": "reproducibility.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}


def without_marks(source: list[str]) -> None:
    """Marks of benchmarks/documents.py at the start of a line would end the paragraph."""
    source[0] = re.sub(r"<!--/?v[^>]*-->", "", source[0])


def links(_app: object, _page: str, source: list[str]) -> None:
    """Links to files beside docs/ go to their pages; those to code are plain names."""
    without_marks(source)
    source[0] = source[0].replace("](../examples/", "](examples/")
    for name, page in BESIDE.items():
        source[0] = source[0].replace(f"](../{name}", f"]({page}")
    source[0] = re.sub(r"\[([^]]+)\]\(\.\./[^)]+\)", r"\1", source[0])


def beside(source: list[str]) -> None:
    """The same for a file beside docs/, whose links begin with docs/."""
    without_marks(source)
    source[0] = source[0].replace("](docs/", "](")
    for name, page in BESIDE.items():
        source[0] = source[0].replace(f"]({name}", f"]({page}")
    source[0] = re.sub(
        r"\[([^]]+)\]\((?:CITATION.cff|LICENSE|NOTICE|SECURITY.md)\)", r"\1", source[0]
    )


def copy_notebooks(_app: object, _config: object) -> None:
    """Sphinx reads only what lies in docs/."""
    (HERE / "examples").mkdir(exist_ok=True)
    for notebook in (HERE.parent / "examples").glob("*.ipynb"):
        shutil.copy2(notebook, HERE / "examples")


def setup(app: Any) -> None:
    app.connect("config-inited", copy_notebooks)
    app.connect("source-read", links)
    app.connect("include-read", lambda app, path, name, source: beside(source))
