"""The registry: names, summaries, and what is said about unknown ones."""

from __future__ import annotations

import pytest

from cala.errors import UnknownNameError
from cala.heads import ADAPTERS, HEADS
from cala.registry import Registry


def test_a_name_is_entered_once():
    things = Registry("thing")
    things.register("a", "first")(1)
    with pytest.raises(UnknownNameError, match="thing 'a' is registered twice"):
        things.register("a", "second")(2)
    assert things["a"] == 1


def test_unknown_names_are_lookup_and_value_errors():
    for kind in (LookupError, ValueError):
        with pytest.raises(kind, match="unknown head 'nearest-man': did you mean 'nearest-mean'"):
            HEADS["nearest-man"]
    with pytest.raises(UnknownNameError, match=r"unknown head \['x'\]"):
        HEADS[["x"]]


@pytest.mark.parametrize("registry", [HEADS, ADAPTERS], ids=lambda r: r.kind)
def test_everything_has_a_one_line_summary(registry):
    assert len(registry) > 0
    for name in registry:
        summary = registry.summary(name)
        assert 10 < len(summary) <= 80
        assert "\n" not in summary
