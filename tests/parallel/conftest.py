"""Fixtures of the tests of folds."""

from __future__ import annotations

import pytest

from derivable.device.cpu import threads
from derivable.parallel import element_cuts


@pytest.fixture(params=[1, 3])
def num_threads(request, monkeypatch):
    """With three threads rows are cut, however few, and prefixes are those within a part."""
    before = threads.get_num_threads()
    threads.set_num_threads(request.param)
    monkeypatch.setattr(element_cuts, "MIN_CHUNK", 4)
    yield request.param
    threads.set_num_threads(before)
