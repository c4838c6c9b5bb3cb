"""One query, two kernels: a binary relation's recent rows joined with a relation that does not change.

`path(x, y) <- project [x, y] (join [z] (scan recent path(x, z)) (scan edge(z, y)))` and its mirror images are the inner
loop of reachability. Candidates are written to a buffer that stays in cache, then inserted.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.nodes import Var
from derivable.datalog.storage import Table
from derivable.device.cpu import pair_set

CANDIDATES = 1 << 15


@dataclass(frozen=True)
class _Shape:
    """Column numbers: key in the left and the right scan, value in the right one; sources 0, 1 (left) or 2 (value)."""

    left: str
    right: str
    left_key: int
    right_key: int
    first: int
    second: int


def _shape(store: m.Store) -> _Shape | None:
    match store.query:
        case m.Project(
            terms=(Var(name=a), Var(name=b)),
            source=m.Join(
                left=m.Scan(relation=left, terms=(Var(name=p), Var(name=q)), part="recent"),
                right=m.Scan(relation=right, terms=(Var(name=r), Var(name=s)), part="all"),
            ),
        ) if p != q and r != s:
            shared = {p, q} & {r, s}
            if len(shared) != 1:
                return None
            key = shared.pop()
            value = s if r == key else r
            source = {p: 0, q: 1, value: 2}
            return _Shape(left, right, (p, q).index(key), (r, s).index(key), source[a], source[b])
    return None


def join_pairs(tables: Mapping[str, Table], complete: AbstractSet[str], store: m.Store) -> bool:
    """Run the query by the kernel if it has the shape for it; False if it has not."""
    shape = _shape(store)
    if shape is None or shape.right not in complete:
        return False
    table, left, right = tables[store.relation], tables[shape.left], tables[shape.right]
    if table.pairs is None or left.pairs is None or right.pairs is None or not right.size:
        return False
    index = right.index((shape.right_key,), True)
    if index.offsets is None:
        return False
    values = index.values_of(1 - shape.right_key)
    pairs = table.pairs
    top_value = index.top_value(1 - shape.right_key)
    tops = (len(left.pairs.base) - 1, left.pairs.domain - 1, top_value)
    if tops[shape.first] >= len(pairs.base) or tops[shape.second] >= pairs.domain:
        pairs.widen(tops[shape.first], tops[shape.second], table.log, table.size)
    recent = left.recent
    assert isinstance(recent, slice)
    xs, ys = np.empty(CANDIDATES, dtype=np.int32), np.empty(CANDIDATES, dtype=np.int32)
    i, stop, position = recent.start, recent.stop, -1
    while i < stop:
        count, i, position = pair_set.join_pairs(
            left.log,
            i,
            stop,
            position,
            shape.left_key,
            shape.first,
            shape.second,
            index.offsets,
            index.low,
            values,
            xs,
            ys,
        )
        if count:
            table.enter_pairs(pairs, xs[:count], ys[:count])
    return True
