"""Modules that are imported when one of their names is asked for."""

import sys

import pytest

import derivable as dv
from derivable.core.lazy import later


def test_names_are_found_late_and_are_those_of_the_module(tmp_path, monkeypatch):
    (tmp_path / "late_module.py").write_text("number = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = later("late_module")
    assert "late_module" not in sys.modules
    assert module.number == 1
    monkeypatch.setattr(sys.modules["late_module"], "number", 2)
    assert module.number == 2
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018


def test_a_name_of_a_submodule_is_shown_where_it_is():
    with pytest.raises(AttributeError, match=r"no attribute 'compile'; did you mean derivable\.circuit\.compile\?"):
        dv.compile  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'nothing_like_it'$"):
        dv.nothing_like_it  # noqa: B018
