"""Matrices of bits: recursions on a device that are products of relations without tags.

Where all rules leave the same column alone, they are inclusions of rows. A few passes over all rows end most of these;
for others the strongly connected components are computed on the host, and each is solved after those that it includes,
either on the host or level by level on the device, by what the launches of levels and the way there and back take. All
other recursions go in rounds until no bit is new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from derivable.circuit.kernels.and_or import grouped, heights
from derivable.datalog.apm.matrices import ROUNDS, Closure, Domain, Recursion
from derivable.datalog.kernels import device_bits as bits
from derivable.datalog.ram.products import Product
from derivable.datalog.shortcuts.condensed import Condensed, words_for
from derivable.datalog.shortcuts.condensed import include as include_on_host

# Bytes up to which all of a matrix may be read in each round, and edges up to which components are looked for.
ROUND_BYTES, MOST_EDGES = 1 << 28, 1 << 22
# Seconds, about: a launch of a kernel, a byte read by a device and by the threads of a host, one that travels; what
# passes may take, which is a part of what components do, and that for each edge.
LAUNCH, DEVICE_BYTE, HOST_BYTE, TRAVEL_BYTE = 16e-6, 1 / 2e12, 1 / 8e9, 1 / 12e9
LOOK, EDGE = 1e-3, 2e-8


def solve(
    products: Sequence[Product],
    relations: Sequence[str],
    device: Any,
    tables: Sequence[Any],
    watch: Callable[[int], Any],
) -> Closure | None:
    """The end of a recursion; None if it is to go pair by pair.

    tables  see `Recursion`
    watch   called with the number of pairs before their columns are made, and with 0 before each round
    """
    if device.type != "cpu" and not bits.has_kernels(device):
        return None
    recursion = _Bits(products, relations, device, tables)
    if not recursion.fits():
        return None
    matrices, how = recursion.solved(lambda: watch(0))
    counts = [bits.counts(words) for words in matrices]
    ends = [count.view(-1).cumsum(0) for count in counts]
    totals = torch.stack([end[-1] for end in ends]).tolist()
    watch(sum(totals))
    columns = []
    for name, words, end, total in zip(relations, matrices, ends, totals):
        pairs = BitPairs(words, end, total, (recursion.domain(name, 0), recursion.domain(name, 1)))
        columns.append((BitColumn(pairs, 0), BitColumn(pairs, 1)))
    return Closure(columns, f"matrices of bits, {recursion.shapes}; {how}")


class BitPairs:
    """The pairs of a matrix of bits, sorted, which become columns when somebody reads them."""

    def __init__(self, words: Any, ends: Any, total: int, domains: tuple[Domain, Domain]):
        self.total, self.domains = total, domains
        self.matrix: tuple[Any, Any] | None = (words, ends)

    @cached_property
    def columns(self) -> tuple[Any, Any]:
        assert self.matrix is not None
        rows, columns = bits.pairs(*self.matrix, self.total)
        pair = self.domains[0].words(rows), self.domains[1].words(columns)
        self.matrix = None
        return pair


@dataclass(frozen=True, eq=False)
class BitColumn:
    """A column of such pairs."""

    pairs: BitPairs
    side: int

    def __len__(self) -> int:
        return self.pairs.total

    def whole(self) -> Any:
        return self.pairs.columns[self.side]


def width_of(size: int) -> int:
    """Words of 32 bits of rows of that number of bits."""
    return 2 * words_for(size)


class _Bits(Recursion):
    """Matrices [row, word] int32."""

    @property
    def is_condensed(self) -> bool:
        return self.passing is not None and self.number_of_edges <= MOST_EDGES

    def fits(self) -> bool:
        """Whether matrices fit in memory, and are not so large that pairs would be faster."""
        sizes = [
            sum(4 * self.size(name, 1 - column) * width_of(self.size(name, column)) for name in self.relations)
            for column in (0, 1)
        ]
        return max(sizes) <= self.memory() and (self.is_condensed or max(sizes) <= ROUND_BYTES)

    def solved(self, look: Callable[[], Any]) -> tuple[list[Any], str]:
        """[relation] upright matrices, and how they were computed."""
        if self.is_condensed:
            state, how = self.by_inclusion()
        else:
            state, rounds = self.by_rounds(look)
            how = f"{rounds:,} rounds"
        return [self.upright(name, state[name]) for name in self.relations], how

    def filled(self, name: str) -> Any:
        lane = self.lane[name]
        rows, columns = (self.domain(name, c).numbers(self.begin[name][c]) for c in (1 - lane, lane))
        return bits.fill(rows, columns, self.size(name, 1 - lane), width_of(self.size(name, lane)))

    def graph(self, k: int, target_column: int) -> tuple[Any, Any]:
        return self.by_target(*self.numbered(k, target_column), self.size(self.products[k].target, target_column))

    def by_target(self, targets: Any, sources: Any, rows: int) -> tuple[Any, Any]:
        """(offsets, sources) of edges."""
        targets, order = torch.sort(targets)
        return torch.searchsorted(targets, torch.arange(rows + 1, device=self.device)), sources[order]

    def turned(self, matrix: Any, rows: int, lanes: int) -> Any:
        return bits.transposed(matrix, lanes, width_of(rows))

    def included(self, into: Any, matrix: Any, graph: Any, rows: int) -> Any:
        offsets, sources = graph
        if into is None:
            return bits.included(matrix, offsets, sources)
        matrix_after = into.clone()
        bits.include(matrix_after, matrix, offsets, sources, 0, rows)
        return matrix_after

    def merged(self, matrix: Any, other: Any) -> Any:
        return matrix | other

    def differ(self, matrix: Any, other: Any) -> Any:
        return (matrix != other).any()

    def by_inclusion(self) -> tuple[dict[str, Any], str]:
        """Where the same column passes through everywhere, rows of all relations go into one another."""
        first, rows = {}, 0
        for name in self.relations:
            first[name] = rows
            rows += self.size(name, 1 - self.lane[name])
        targets, sources = [], []
        for k, one in enumerate(self.products):
            column = 1 - self.lane[one.target]
            if one.sides[column].edges is None:
                target_rows = source_rows = torch.arange(self.size(one.target, column), device=self.device)
            else:
                target_rows, source_rows = self.numbered(k, column)
            targets.append(target_rows + first[one.target])
            sources.append(source_rows + first[one.source])
        graph = self.by_target(torch.cat(targets), torch.cat(sources), rows)
        words = torch.cat([self.filled(name) for name in self.relations])
        words, how = _included(words, *graph)
        parts = {name: words[at : at + self.size(name, 1 - self.lane[name])] for name, at in first.items()}
        return parts, how


def _included(words: Any, offsets: Any, sources: Any) -> tuple[Any, str]:
    """Rows [row, word] with all that they include along these edges, and how that was computed.

    All rows are passed through, as often as costs less than to look for components. A pass goes on from what it has
    written itself; where the last one has written nothing new, no row misses anything.
    """
    is_here = words.is_cpu and not bits.has_kernels(words.device)
    number, rows = len(sources), len(words)
    a_pass = LAUNCH + 4 * words.shape[1] * (number + 2 * rows) * DEVICE_BYTE
    most = 0 if is_here else int((LOOK + EDGE * (number + rows)) / a_pass)
    for passed in range(ROUNDS, most + 1, ROUNDS):
        for k in range(ROUNDS):
            before = words.clone() if k == ROUNDS - 1 else None
            bits.include(words, words, offsets, sources, 0, rows)
        if not bool((words != before).any()):
            return words, f"{passed:,} passes"
    levels = _Levels(Condensed.of({}, offsets.cpu().numpy(), sources.cpu().numpy()))
    if is_here or levels.seconds_on_host(words) < levels.seconds_on_device(words):
        return levels.on_host(words), f"{levels.condensed.count:,} components, on the host"
    return levels.on_device(words), f"{levels.condensed.count:,} components, {levels.count:,} levels"


class _Levels:
    """Components of rows by the length of the longest path of inclusions that they begin.

    order  [rank] components, level after level
    ends   [level + 1] where each begins
    """

    def __init__(self, condensed: Condensed):
        self.condensed, count = condensed, condensed.count
        component = np.empty(condensed.rows, np.int64)
        component[condensed.order] = np.repeat(np.arange(count), np.diff(condensed.bounds))
        children, level = component[condensed.links], np.zeros(count, np.int64)
        heights(condensed.ends, children, level)
        self.ends, self.order = grouped(level, int(level.max(initial=0)) + 1)
        self.rank = np.empty(count, np.int64)
        self.rank[self.order] = np.arange(count)
        self.component, self.children = component, children

    @property
    def count(self) -> int:
        return len(self.ends) - 1

    def read(self, words: Any) -> int:
        """Bytes of rows that are read or written."""
        return 4 * words.shape[1] * (2 * len(self.condensed.links) + 2 * len(words))

    def seconds_on_host(self, words: Any) -> float:
        travel = 0.0 if words.is_cpu else 2 * words.nbytes * TRAVEL_BYTE
        return travel + self.read(words) * HOST_BYTE

    def seconds_on_device(self, words: Any) -> float:
        return self.count * LAUNCH + self.read(words) * DEVICE_BYTE

    def on_host(self, words: Any) -> Any:
        host_words = words.cpu().contiguous()
        include_on_host(
            self.condensed, host_words.numpy().reshape(-1).view(np.uint64), words.shape[1] // 2, lambda: None
        )
        return host_words.to(words.device)

    def on_device(self, words: Any) -> Any:
        """Each component is a row, which its rows and then those of its links go into; its rows become that one."""
        condensed, device = self.condensed, words.device

        def moved(array: np.ndarray) -> Any:
            return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(device)

        def graph(starts: np.ndarray, sources: np.ndarray) -> tuple[Any, Any]:
            """Edges of components by their ranks."""
            sizes = np.diff(starts)[self.order]
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            at = np.repeat(starts[:-1][self.order] - offsets[:-1], sizes) + np.arange(offsets[-1])
            return moved(offsets), moved(sources[at])

        device_words = bits.included(words, *graph(condensed.bounds, condensed.order))
        links = graph(condensed.ends, self.rank[self.children])
        for start, stop in zip(self.ends[1:-1].tolist(), self.ends[2:].tolist()):
            bits.include(device_words, device_words, *links, start, stop)
        return device_words[moved(self.rank[self.component])]
