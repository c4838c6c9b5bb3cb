"""Small tensors: Python runs their kernels, except where a test asks for what is compiled."""

import pytest


# Not of the package: pytest ends such a fixture only when the last test of its package in the list of a worker has
# run, and tests of other packages that come before that one would run interpreted too.
@pytest.fixture(autouse=True)
def _interpreted(monkeypatch):
    monkeypatch.setenv("DERIVABLE_TIER", "interpreted")


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.setenv("DERIVABLE_TIER", "compiled")
