"""Small tensors: Python runs their kernels, except where a test asks for what is compiled."""

import pytest


@pytest.fixture(autouse=True, scope="package")
def _interpreted():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DERIVABLE_TIER", "interpreted")
        yield


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.setenv("DERIVABLE_TIER", "compiled")
