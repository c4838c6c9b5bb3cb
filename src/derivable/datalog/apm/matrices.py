"""Recursions that are products of matrices, solved on a device without a join.

A relation of two columns is a matrix, a row for each value of one column and a lane for each of the other one. Each
rule is a product of such a matrix by fixed ones, which are sparse (`ram.products`): rows that go into rows, on one side
or, transposed, on the other. What entries are, and how rows go into rows, `bit_matrices` and `tag_matrices` say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from derivable.datalog.policy.costs import policy
from derivable.datalog.ram.products import Product

# The share of the memory that is free on a device that the matrices of a recursion may have.
SHARE = 8
# Rounds between looks of the host whether there is an end, for matrices of that many entries at most.
ROUNDS, MANY = 4, 1 << 24
# Values are ranks from SPREAD times as many values as columns have, and FEW.
SPREAD, FEW = 2, 1 << 12

Key = tuple[int, int]


@dataclass(frozen=True)
class Closure:
    """All rows of each relation, sorted, with columns of their tags if they have some, and how they were computed."""

    rows: list[tuple[Any, ...]]
    note: str


@dataclass
class Domain:
    """The values of columns that pass into one another: all integers below `size`, or those of `values` by rank."""

    size: int
    values: Any = None

    def numbers(self, words: Any) -> Any:
        return words if self.values is None else torch.searchsorted(self.values, words.contiguous())

    def words(self, numbers: Any) -> Any:
        return numbers if self.values is None else self.values[numbers]


class Recursion(ABC):
    """A recursion, and what it is over.

    begin  relation -> columns [row] of what there is before, distinct rows: two of words, and those of tags
    edges  (product, column of its target) -> columns [edge] of the side that this column has: words of the target, of
           the source, and tags; sides of what passes through have none
    """

    def __init__(self, products: Sequence[Product], relations: Sequence[str], device: Any, tables: Sequence[Any]):
        """tables  columns of the rows that there are before, of each relation, and then of the edges of each side that
        has some"""
        self.products, self.relations, self.device = products, list(relations), device
        self.begin = dict(zip(relations, tables))
        remaining = iter(tables[len(relations) :])
        self.edges: dict[Key, Any] = {
            (k, target_column): next(remaining)
            for k, one in enumerate(products)
            for target_column, side in enumerate(one.sides)
            if side.edges is not None
        }
        self.class_of = self._classes()
        self.domains = self._domains()

    def _classes(self) -> dict[tuple[str, int], tuple[str, int]]:
        """(relation, column) -> the one that stands for all columns that pass into one another."""
        class_of = {(name, column): (name, column) for name in self.relations for column in (0, 1)}
        for one in self.products:
            for target_column, side in enumerate(one.sides):
                if side.edges is None:
                    old, new = class_of[one.source, side.column], class_of[one.target, target_column]
                    class_of = {key: new if of == old else of for key, of in class_of.items()}
        return class_of

    def _domains(self) -> dict[tuple[str, int], Domain]:
        words_of: dict[tuple[str, int], list[Any]] = {of: [] for of in self.class_of.values()}
        for name, columns in self.begin.items():
            for column, words in enumerate(columns[:2]):
                words_of[self.class_of[name, column]].append(words)
        for (k, target_column), (targets, sources, *_) in self.edges.items():
            one = self.products[k]
            words_of[self.class_of[one.target, target_column]].append(targets)
            words_of[self.class_of[one.source, one.sides[target_column].column]].append(sources)
        some = {of: [words for words in columns if len(words)] for of, columns in words_of.items()}
        ends = [torch.stack(torch.aminmax(words)) for columns in some.values() for words in columns]
        read = iter(torch.stack(ends).tolist() if ends else ())
        domains = {}
        for of, columns in some.items():
            bounds = [next(read) for _ in columns]
            low, high = min((b[0] for b in bounds), default=0), max((b[1] for b in bounds), default=0)
            if low >= 0 and high < SPREAD * sum(map(len, columns)) + FEW:
                domains[of] = Domain(high + 1)
            else:
                values = torch.unique(torch.cat(columns))
                domains[of] = Domain(len(values), values)
        return domains

    def domain(self, name: str, column: int) -> Domain:
        return self.domains[self.class_of[name, column]]

    def size(self, name: str, column: int) -> int:
        return self.domain(name, column).size

    def memory(self) -> int:
        """Bytes that matrices may have."""
        if self.device.type != "cuda":
            return policy().small_bytes
        return torch.cuda.mem_get_info(self.device)[0] // SHARE

    @cached_property
    def passing(self) -> dict[str, int] | None:
        """relation -> the column that all products leave alone; None if there is no such."""
        lanes: dict[str, int] = {}
        for one in self.products:
            through = [
                (side.column, target_column) for target_column, side in enumerate(one.sides) if side.edges is None
            ]
            if len(through) == 1:
                ((source, target),) = through
                if lanes.setdefault(one.source, source) != source or lanes.setdefault(one.target, target) != target:
                    return None
        for _ in self.products:
            for one in self.products:
                if all(side.edges is None for side in one.sides) and one.source in lanes:
                    column = lanes[one.source]
                    target_column = next(
                        target_column for target_column, side in enumerate(one.sides) if side.column == column
                    )
                    if lanes.setdefault(one.target, target_column) != target_column:
                        return None
        is_known = all(name in lanes for name in self.relations)
        two_sided = any(all(side.edges is not None for side in one.sides) for one in self.products)
        return lanes if is_known and not two_sided else None

    @cached_property
    def lane(self) -> dict[str, int]:
        """relation -> the column whose values are lanes; one that passes through needs no transpose."""
        return self.passing or dict.fromkeys(self.relations, 1)

    @cached_property
    def number_of_edges(self) -> int:
        return sum(len(columns[0]) for columns in self.edges.values())

    @property
    def shapes(self) -> str:
        return ", ".join(f"{name} {self.size(name, 0):,} x {self.size(name, 1):,}" for name in self.relations)

    def numbered(self, k: int, target_column: int) -> tuple[Any, Any]:
        """The edges of a side as numbers of values."""
        one = self.products[k]
        targets, sources = self.edges[k, target_column][:2]
        column = one.sides[target_column].column
        return self.domain(one.target, target_column).numbers(targets), self.domain(one.source, column).numbers(sources)

    # Rounds

    @abstractmethod
    def filled(self, name: str) -> Any:
        """The matrix of the rows before the recursion."""

    @abstractmethod
    def graph(self, k: int, target_column: int) -> Any:
        """The edges of a side by target, for `included`."""

    @abstractmethod
    def turned(self, matrix: Any, rows: int, lanes: int) -> Any:
        """The transpose of a matrix of these numbers of rows and lanes."""

    @abstractmethod
    def included(self, into: Any, matrix: Any, graph: Any, rows: int) -> Any:
        """A matrix `into`, or zeros if that is None, of that number of rows, with rows of another one along edges."""

    @abstractmethod
    def merged(self, matrix: Any, other: Any) -> Any:
        """The sum of two matrices."""

    @abstractmethod
    def differ(self, matrix: Any, other: Any) -> Any:
        """Whether two matrices differ, as one number on the device."""

    def by_rounds(self, look: Callable[[], Any]) -> tuple[dict[str, Any], int]:
        """relation -> its matrix at the end, and the number of rounds."""
        state = {name: self.filled(name) for name in self.relations}
        graphs = {key: self.graph(*key) for key in self.edges}
        entries = max(self.size(name, 0) * self.size(name, 1) for name in self.relations)
        # Small matrices take less time than to read whether there is an end.
        step = 1 if self.device.type == "cpu" or entries > MANY else ROUNDS
        rounds, is_new = 0, True
        while is_new:
            look()
            for left in range(step, 0, -1):
                news = []
                for k, one in enumerate(self.products):
                    after = self.product(k, one, state, graphs)
                    if left == 1:
                        news.append(self.differ(state[one.target], after))
                    state[one.target] = after
            rounds += step
            is_new = bool(torch.stack(news).any())
        return state, rounds

    def product(self, k: int, one: Product, state: dict[str, Any], graphs: dict[Key, Any]) -> Any:
        """The matrix of the target with what a product gives."""
        into, matrix = state[one.target], state[one.source]
        lane = self.lane[one.target]
        row = 1 - lane
        rows, lanes = (self.size(one.source, one.sides[target_column].column) for target_column in (row, lane))
        if self.lane[one.source] != one.sides[lane].column:
            matrix = self.turned(matrix, lanes, rows)
        made = self.size(one.target, row)
        if (k, lane) not in graphs and (k, row) in graphs:
            return self.included(into, matrix, graphs[k, row], made)
        if (k, row) in graphs:
            matrix, rows = self.included(None, matrix, graphs[k, row], made), made
        if (k, lane) in graphs:
            matrix = self.turned(matrix, rows, lanes)
            lanes = self.size(one.target, lane)
            matrix = self.included(None, matrix, graphs[k, lane], lanes)
            matrix = self.turned(matrix, lanes, rows)
        return self.merged(into, matrix)

    def upright(self, name: str, matrix: Any) -> Any:
        """A matrix with a row for each value of the first column."""
        if self.lane[name] == 1:
            return matrix
        return self.turned(matrix, self.size(name, 1), self.size(name, 0))

    def words(self, name: str, rows: Any, lanes: Any) -> tuple[Any, Any]:
        """The columns of entries of an upright matrix."""
        return self.domain(name, 0).words(rows), self.domain(name, 1).words(lanes)
