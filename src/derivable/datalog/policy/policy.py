"""The policy of a run: which shortcuts it may take.

Whoever wants another one for a block of code says so by `under`; that reaches layers, databases that grow, and whatever
else begins a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Policy:
    """shortcuts  those that recursions may take, of `shortcuts.SHORTCUTS`, in this order; None for all"""

    shortcuts: tuple[Any, ...] | None = None


STANDARD = Policy()
_current: ContextVar[Policy] = ContextVar("policy", default=STANDARD)
# The policy of the code that runs.
policy = _current.get


@contextmanager
def under(**changes: Any) -> Iterator[None]:
    """Have what runs in a block run under a policy that differs in these fields."""
    token = _current.set(replace(policy(), **changes))
    try:
        yield
    finally:
        _current.reset(token)
