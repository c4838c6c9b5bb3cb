"""Runs what reads many rows in pieces, where a join would have more pairs at once than there may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from derivable.core.diagnostics import LimitError
from derivable.parallel.program import nodes as n

if TYPE_CHECKING:
    from derivable.parallel.program.execute import Run, Step


class TooManyPairs(LimitError):
    """A join has more pairs than may be there at once.

    number  of its pairs
    most    that may be there at once
    """

    def __init__(self, number: int, most: int):
        super().__init__(
            f"a join has {number:,} pairs, and {most:,} rows at most are sorted at once",
            hint="have the rule join fewer rows at once (a recursive atom and a base one), or run on the CPU",
        )
        self.number, self.most = number, most


def in_pieces(run: Run, node: n.Pieces, body: Sequence[Step], folded: Sequence[Step]) -> Sequence[Any]:
    """What the body gives for all rows, or for each of as many pieces as it takes, folded.

    Raises TooManyPairs where one row alone has too many pairs.
    """
    run.settle(node.operands)
    columns, arrays = run.many(node.of), run.arrays
    found: list[Sequence[Any]] = []
    waiting = [(0, len(columns[0]))]
    is_whole = True
    while waiting:
        start, stop = waiting.pop()
        part = columns if is_whole else [column[start:stop] for column in columns]
        arrays.may_cut = stop - start > 1
        try:
            steps, results = (body, node.body) if is_whole else (folded, node.folded)
            found.append(run.inside(node.rows, part, node.operands, steps, results, node.is_whole or not is_whole))
        except TooManyPairs as error:
            if stop - start < 2:
                raise
            # Rows have different numbers of pairs, so some of these pieces may have too many again.
            step = -(-(stop - start) // min(stop - start, 2 * error.number // max(error.most, 1) + 1))
            waiting += reversed([(k, min(k + step, stop)) for k in range(start, stop, step)])
            is_whole = False
        finally:
            arrays.may_cut = False
    return found[0] if is_whole else [arrays.concatenate(list(parts)) for parts in zip(*found)]
