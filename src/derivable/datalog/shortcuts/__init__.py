"""Recursions of a known form, solved in another way than round by round: see `shortcut.Shortcut`."""

from __future__ import annotations

from derivable.datalog.policy.costs import policy
from derivable.datalog.shortcuts.best_first import BestFirst, BestValueFirst
from derivable.datalog.shortcuts.bit_rows import BitRows
from derivable.datalog.shortcuts.shortcut import Shortcut
from derivable.datalog.shortcuts.transitive_as_linear import Linear
from derivable.datalog.shortcuts.union_find import UnionFind

# In the order in which a recursion looks at them.
SHORTCUTS: tuple[type[Shortcut], ...] = (UnionFind, Linear, BitRows, BestFirst, BestValueFirst)


def shortcuts() -> tuple[type[Shortcut], ...]:
    """Those that a run may take."""
    allowed = policy().shortcuts
    return SHORTCUTS if allowed is None else allowed
