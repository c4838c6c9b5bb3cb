"""Random facts whose probabilities follow from those of derived tuples: what `softmax` and `top` make in a layer.

A run knows the probabilities when it comes to such an aggregate. A layer gets them with each call, so it computes
the tuples' probabilities first, then those of the new facts, then what depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, eq=False)
class Derived:
    """The facts of one aggregate, for groups of rows.

    kind       "normalize": p / sum of p; "softmax": exp p / sum of exp p; "top": 1 for the k largest p, else 0;
               "rank", "rank_up": for each row and rank 1 if p is the largest, the second, ... (the smallest, ...).
               Of equal rows the first one comes first
    offsets    [group + 1] the rows of each group
    nodes      [row] nodes of the derivation graph, whose probabilities p are
    variables  [fact] the new random facts, one a row; for ranks, group by group, one a row and rank
    """

    kind: Literal["normalize", "softmax", "top", "rank", "rank_up"]
    offsets: np.ndarray
    nodes: np.ndarray
    variables: np.ndarray
    k: int = 1

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        """[*batch, fact] for p [*batch, row]."""
        parts = []
        for start, stop in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist()):
            p = values[..., start:stop]
            if self.kind == "softmax":
                p = np.exp(p)
            if self.kind in ("softmax", "normalize"):
                total = p.sum(axis=-1, keepdims=True)
                parts.append(np.divide(p, total, out=np.zeros_like(p), where=total > 0))
                continue
            order = np.argsort(p if self.kind == "rank_up" else -p, axis=-1, kind="stable")
            rank = np.argsort(order, axis=-1, kind="stable")
            if self.kind == "top":
                parts.append((rank < self.k).astype(p.dtype))
            else:
                is_there = rank[..., None] == np.arange(stop - start)
                parts.append(is_there.reshape(*p.shape[:-1], -1).astype(p.dtype))
        return np.concatenate(parts, axis=-1)
