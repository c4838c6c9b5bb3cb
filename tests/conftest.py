"""Tests are of the compiled tier, as large inputs have it; tests/device/test_tiers.py compares it with Python's.

Where a test says what many kernels mean, the fixture `tier` has Python run their text, and `make test-all` both.
"""

import os

import hypothesis
import pytest

os.environ.setdefault("DERIVABLE_TIER", "compiled")
# Of the time that JAX compiles, a fifth is for optimisation. Ours is a call inside, which that does not reach.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Tests run beside each other, and waiting threads of PyTorch spin: small steps took ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A machine that decides whether a change lands draws the same examples each time; people draw new ones.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


@pytest.fixture(params=["interpreted", pytest.param("compiled", marks=pytest.mark.slow)])
def tier(request, monkeypatch):
    """What runs kernels: Python, and in the long suite their compiled form too.

    Nearly all of the time of a test with many operators on a few numbers goes into compiling. A test that is of the
    compiled tier in both suites asks for it: @pytest.mark.parametrize("tier", ["compiled"], indirect=True).
    """
    monkeypatch.setenv("DERIVABLE_TIER", request.param)


@pytest.fixture
def tier_of_users(monkeypatch):
    """What users have: Python for small inputs and what is not compiled yet."""
    monkeypatch.delenv("DERIVABLE_TIER", raising=False)
