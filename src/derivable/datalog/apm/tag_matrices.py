"""Matrices of tags: recursions on a device that are products of relations whose tags are best values.

Where plus gives the same again for equal operands, all of a matrix may be computed again in each round, and the rounds
end when no entry changes: shortest paths, most probable derivations, weakest links, for all pairs at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from derivable.algebra.semiring import TypedSemiring
from derivable.core.diagnostics import LimitError
from derivable.datalog.apm.matrices import Closure, Recursion
from derivable.datalog.kernels import device_bits as bits
from derivable.datalog.kernels.tag_rows import include_rows_kernel
from derivable.datalog.ram.products import Product
from derivable.datalog.run.limits import ENDLESS_HINT, endless_tags
from derivable.device.cuda.compiler import Launches, are_aligned, current
from derivable.kernel.emit_triton import compile_triton
from derivable.parallel.program import nodes as n

# Bytes up to which a round may read, and those of rows that torch gathers at once where there are no kernels.
ROUND_BYTES, GATHERED = 1 << 32, 1 << 26


def solve(
    products: Sequence[Product],
    relations: Sequence[str],
    typed: TypedSemiring,
    arrays: Any,
    tables: Sequence[Any],
    watch: Callable[[int], Any],
) -> Closure | None:
    """The end of a recursion; None if it is to go row by row. See `bit_matrices.solve`."""
    recursion = _Tags(products, relations, typed, arrays, tables)
    if not recursion.fits():
        return None
    entries, looks = sum(recursion.size(name, 0) * recursion.size(name, 1) for name in relations), itertools.count()

    def look() -> None:
        what = endless_tags(typed.semiring, entries, next(looks))
        if what:
            raise LimitError(what, hint=ENDLESS_HINT)
        watch(0)

    state, rounds = recursion.by_rounds(look)
    columns = []
    for name in relations:
        matrix = recursion.upright(name, state[name])
        rows, lanes = recursion.there(matrix).nonzero(as_tuple=True)
        watch(len(rows))
        columns.append((*recursion.words(name, rows, lanes), *(component[rows, lanes] for component in matrix)))
    return Closure(columns, f"matrices of tags, {recursion.shapes}; {rounds:,} rounds")


class _Tags(Recursion):
    """Matrices [component] [row, lane]."""

    def __init__(self, products: Any, relations: Any, typed: TypedSemiring, arrays: Any, tables: Any):
        super().__init__(products, relations, arrays.device, tables)
        self.typed, self.arrays = typed, arrays
        functions = {"plus": typed.plus, "times": typed.times, "discard": typed.discard}
        self.functions = {name: n.Function.of(name, of) for name, of in functions.items()}

    def fits(self) -> bool:
        """Whether matrices fit in memory, and are not so large that rows would be faster."""
        width = sum(np.dtype(dtype).itemsize for dtype in self.typed.dtypes)
        shapes = [(self.size(name, 1 - self.lane[name]), self.size(name, self.lane[name])) for name in self.relations]
        size = width * sum(rows * lanes for rows, lanes in shapes)
        read = 4 * size + width * self.number_of_edges * max(lanes for _, lanes in shapes)
        return 4 * size <= self.memory() and read <= ROUND_BYTES

    def apply(self, name: str, shape: Sequence[int], *operands: Sequence[Any]) -> list[Any]:
        return self.arrays.apply(self.functions[name], [part for each in operands for part in each], *shape)

    def there(self, matrix: list[Any]) -> Any:
        return ~self.apply("discard", matrix[0].shape, matrix)[0]

    def zeros(self, rows: int, lanes: int) -> list[Any]:
        pairs = zip(self.typed.zero, self.typed.dtypes)
        shape = rows, lanes
        return [torch.full(shape, zero.item(), dtype=getattr(torch, of), device=self.device) for zero, of in pairs]

    def filled(self, name: str) -> list[Any]:
        lane = self.lane[name]
        words, tags = self.begin[name][:2], self.begin[name][2:]
        rows, lanes = (self.domain(name, c).numbers(words[c]) for c in (1 - lane, lane))
        matrix = self.zeros(self.size(name, 1 - lane), self.size(name, lane))
        for component, tag in zip(matrix, tags):
            component[rows, lanes] = tag
        return matrix

    def graph(self, k: int, target_column: int) -> tuple[Any, ...]:
        """(offsets, targets, sources, the tag of each edge by component)"""
        targets, sources = self.numbered(k, target_column)
        targets, order = torch.sort(targets, stable=True)
        size = self.size(self.products[k].target, target_column)
        offsets = torch.searchsorted(targets, torch.arange(size + 1, device=self.device))
        return offsets, targets, sources[order], [tag[order] for tag in self.edges[k, target_column][2:]]

    def turned(self, matrix: list[Any], rows: int, lanes: int) -> list[Any]:
        return [component.t().contiguous() for component in matrix]

    def included(self, into: list[Any] | None, matrix: list[Any], graph: Any, rows: int) -> list[Any]:
        offsets, targets, sources, tags = graph
        lanes = matrix[0].shape[1]
        before = self.zeros(rows, lanes) if into is None else into
        if bits.has_kernels(self.device):
            after = [torch.empty_like(component) for component in before]
            launch = _compiled(self.typed, self.device)
            arguments = offsets, sources, *tags, *matrix, *before, *after
            with current(self.device):
                launch((rows,), are_aligned(arguments), rows, lanes, *arguments)
            return after
        step = max(1, GATHERED // (8 * max(1, len(targets))))
        parts = []
        for start in range(0, lanes, step):
            gathered = [component[:, start : start + step][sources] for component in matrix]
            # Each entry is a separate row, as folds with any operator have one lane.
            width = gathered[0].shape[1]
            entries = (targets[:, None] * width + torch.arange(width, device=self.device)).reshape(-1)
            of = [component.reshape(-1) for component in self.products_of(gathered, tags)]
            sums = self.arrays.fold(of, entries, rows * width, self.typed.plus, False)
            parts.append([component.view(rows, width) for component in sums])
        return self.merged(before, [torch.cat(part, 1) for part in zip(*parts)])

    def products_of(self, matrix: list[Any], tags: list[Any]) -> list[Any]:
        """Rows [edge, lane] times the tag of each edge; zero where that is discarded."""
        shape = matrix[0].shape
        products = self.apply("times", shape, matrix, tags)
        there = self.there(products)
        return [torch.where(there, x, zero) for x, zero in zip(products, self.zeros(1, 1))]

    def merged(self, matrix: list[Any], other: list[Any]) -> list[Any]:
        return self.apply("plus", matrix[0].shape, matrix, other)

    def differ(self, matrix: list[Any], other: list[Any]) -> Any:
        return torch.stack([(x != y).any() for x, y in zip(matrix, other)]).any()


@lru_cache(64)
def _compiled(typed: TypedSemiring, device: Any) -> Launches:
    """The kernel, which belongs to a device, compiled once."""
    return Launches(compile_triton(include_rows_kernel(typed), any_number=["rows", "width"]))
