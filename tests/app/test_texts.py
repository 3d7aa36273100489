"""The words of the page: one file for each language, and none anywhere else."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from cala.app.factory import FILES
from cala.app.problems import STATUS

LANGUAGES = sorted((FILES / "texts").glob("*.json"))
TEXTS = {path.stem: json.loads(path.read_text("utf-8")) for path in LANGUAGES}
PROGRAMS = [path for path in FILES.glob("*.js") if path.name != "docs.js"]
ATTRIBUTES = ("aria-label", "placeholder", "title", "alt", "aria-description", "aria-valuetext")
#: Parts of keys that are put together while the page runs.
FAMILIES = (
    *("check.old-", "check.new-", "check.wrong-", "error.", "filter.", "history.", "table."),
)
COMMENT = re.compile(r"(^|(?<=\s))//\s.*$", re.M)
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
VALUE = re.compile(r"\$\{(?:[^{}]|\{[^{}]*\})*\}")
WORDY = re.compile(r"\b[A-Z][a-z]+|[a-z]{2,} [a-z0]+|[ ✓][a-z]{2,}|\w ?…")
#: Strings in programs that look like words and are none of the page.
CODE = {
    *("AbortError", "Authorization", "Bearer 0", "Content-Type", "Idempotency-Key", "0 – cala"),
    *("(pointer: coarse)", "(any-pointer: fine)", "translate(0 0) rotate(-90)"),
}
NAMES = re.compile(r"class: (?:[^,}]*\? )?\"[^\"]*\"(?: : \"[^\"]*\")?|querySelector\w*\([^)]*\)")


def forms(text: str | dict[str, str]) -> list[str]:
    return [text] if isinstance(text, str) else list(text.values())


def test_languages_have_the_same_keys_and_placeholders():
    assert set(TEXTS) == {"de", "en"}
    english, german = TEXTS["en"], TEXTS["de"]
    assert list(english) == list(german)
    for key in english:
        assert type(english[key]) is type(german[key]), key
        for one in (english[key], german[key]):
            assert isinstance(one, str) or set(one) == {"one", "other"}, key
        every = forms(english[key]) + forms(german[key])
        assert all(text.strip() for text in every), key
        left_out = set() if isinstance(english[key], str) else {"n"}  # "your last photo"
        names = {frozenset({*re.findall(r"\{(\w+)\}", text)} - left_out) for text in every}
        assert len(names) == 1, key
        assert len({text.count("`") for text in every}) == 1, key


@pytest.mark.parametrize("language", sorted(TEXTS))
def test_no_key_stands_twice(language):
    text = (FILES / "texts" / f"{language}.json").read_text("utf-8")
    keys = [key for key, _ in json.loads(text, object_pairs_hook=lambda pairs: pairs)]
    assert len(keys) == len(set(keys))


def test_every_key_is_used_and_every_key_that_is_used_is_there():
    page = (FILES / "index.html").read_text("utf-8")
    used = set(re.findall(r'data-(?:text|placeholder|label)="([^"]+)"', page))
    programs = "".join(COMMENT.sub("", path.read_text("utf-8")) for path in PROGRAMS)
    there = set(TEXTS["en"])
    used |= set(re.findall(r'\bt\("([^"]+)"', programs))
    assert used <= there
    used |= set(re.findall(r'"([^"\n]+)"', programs))  # chosen between in a condition
    assert {key for key in there - used if not key.startswith(FAMILIES)} == set()


def test_errors_with_words_are_errors_of_the_service():
    own = {"status", "unreadable"}
    codes = {key[6:] for key in TEXTS["en"] if key.startswith("error.")}
    assert codes - own <= set(STATUS)


class Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.quiet = 0

    def handle_starttag(self, tag, attrs):
        self.quiet += tag == "noscript"
        self.found += [f"{name}={value}" for name, value in attrs if name in ATTRIBUTES and value]

    def handle_endtag(self, tag):
        self.quiet -= tag == "noscript"

    def handle_data(self, data):
        if not self.quiet and re.search(r"[^\W\d_]", data):
            self.found.append(data.strip())


def test_no_words_in_the_html():
    words = Words()
    words.feed((FILES / "index.html").read_text("utf-8"))
    assert set(words.found) == {"cala", "API"}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_no_words_in_the_programs(path):
    text = NAMES.sub("", COMMENT.sub("", path.read_text("utf-8")))
    left = []
    for plain, template in STRING.findall(text):
        rest = plain or VALUE.sub("0", template)
        if WORDY.search(rest) and rest not in CODE:
            left.append(rest)
    assert left == []
