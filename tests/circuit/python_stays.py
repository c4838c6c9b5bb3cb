"""What the fixture `tier` has Python run is run by Python, whatever other tests have had compiled before."""

import os

import pytest

from derivable.device.cpu.tiers import Kernel


def python_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the interpreted tier, nothing goes to kernels that are compiled already.

    A kernel that has been compiled once in a process would compile anew for each further type of its arguments.
    """
    if os.environ.get("DERIVABLE_TIER") == "interpreted":
        monkeypatch.setattr(Kernel, "__call__", Kernel._first)
