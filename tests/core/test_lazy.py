"""Modules that are imported when one of their names is asked for."""

import sys

import pytest

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
