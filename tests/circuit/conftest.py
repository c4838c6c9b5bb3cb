"""Circuits in the interpreted tier: Python runs their kernels, and goes on doing so."""

import pytest

from circuit.python_stays import python_stays


@pytest.fixture
def tier(tier, monkeypatch):
    python_stays(monkeypatch)
