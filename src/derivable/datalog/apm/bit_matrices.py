"""Recursions that are products of matrices of bits, solved on a device without a join.

A relation of two columns is a matrix of bits, and each rule a product of such a matrix by fixed ones, which are sparse
(`ram.products`): rows of bits that go into rows of bits, on one side or, transposed, on the other.

Where all rules leave the same column alone, they are inclusions of rows: the strongly connected components are found on
the host, and each is solved after those that it includes, either on the host or level by level on the device, by what
the launches of levels and the way there and back take. All other recursions go in rounds until no bit is new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.circuit.kernels.and_or import heights
from derivable.core.graph import from_edges
from derivable.core.lazy import later
from derivable.datalog.ram.products import Product
from derivable.datalog.run.bit_rows import Condensed, words_for
from derivable.datalog.run.bit_rows import include as include_on_host

if TYPE_CHECKING:
    import torch

    from derivable.datalog.kernels import device_bits as bits
else:
    torch, bits = later("torch"), later("derivable.datalog.kernels.device_bits")

# Bytes of the matrices of a recursion on the CPU; on a device, a share of the memory that is free there.
MOST_BYTES, SHARE = 1 << 28, 8
# Bytes up to which all of a matrix may be read in each round, and edges up to which components are looked for.
ROUND_BYTES, MOST_EDGES = 1 << 28, 1 << 22
# Values are ranks from that many times as many values as are given on, and that many.
SPREAD, FEW = 2, 1 << 12
# Seconds, about: a launch of a kernel, a byte read by a device and by the threads of a host, one that travels.
LAUNCH, DEVICE_BYTE, HOST_BYTE, TRAVEL_BYTE = 15e-6, 1 / 1.5e12, 1 / 8e9, 1 / 5e9

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Found:
    """All pairs of each relation, sorted, and how they were found."""

    pairs: list[Pair]
    note: str


def solve(
    products: Sequence[Product],
    relations: Sequence[str],
    device: Any,
    begin: Sequence[Pair],
    edges: Sequence[Pair],
    watch: Callable[[int], Any],
) -> Found | None:
    """The end of a recursion; None if it is to go pair by pair.

    begin  [relation] columns [pair] of words that there are before, distinct pairs
    edges  columns of those sides of products that have some, in their order
    watch  called with the number of pairs before their columns are made
    """
    if device.type != "cpu" and not bits.has_kernels(device):
        return None
    recursion = _Recursion(products, relations, device, begin, edges)
    if not recursion.fits():
        return None
    matrices, note = recursion.solved()
    counts = [bits.counts(words) for words in matrices]
    ends = [count.view(-1).cumsum(0) for count in counts]
    totals = torch.stack([end[-1] for end in ends]).tolist()
    watch(sum(totals))
    found = []
    for name, words, end, total in zip(relations, matrices, ends, totals):
        pair = bits.pairs(words, end, total)
        domains = [recursion.domain(name, column) for column in (0, 1)]
        found.append(tuple(domain.words(column) for domain, column in zip(domains, pair)))
    return Found(found, note)


@dataclass
class _Domain:
    """The values of columns that pass into one another: all integers below `size`, or those of `values` by rank."""

    size: int
    values: Any = None

    def numbers(self, words: Any) -> Any:
        return words if self.values is None else torch.searchsorted(self.values, words.contiguous())

    def words(self, numbers: Any) -> Any:
        return numbers if self.values is None else self.values[numbers]


class _Recursion:
    """A recursion and the numbers of what it is over.

    rows, columns  relation -> numbers of the values in the first and in the second column
    """

    def __init__(self, products: Any, relations: Any, device: Any, begin: Any, edges: Any):
        self.products, self.relations, self.device = products, list(relations), device
        self.begin = dict(zip(relations, begin))
        given = iter(edges)
        self.edges = {
            (k, place): next(given)
            for k, one in enumerate(products)
            for place, side in enumerate(one.sides)
            if side.edges is not None
        }
        self.class_of = self._classes()
        self.domains = self._domains()

    def _classes(self) -> dict[tuple[str, int], tuple[str, int]]:
        """(relation, column) -> the one that stands for all columns that pass into one another."""
        found = {(name, column): (name, column) for name in self.relations for column in (0, 1)}
        for one in self.products:
            for place, side in enumerate(one.sides):
                if side.edges is None:
                    old, new = found[one.source, side.column], found[one.target, place]
                    found = {key: new if of == old else of for key, of in found.items()}
        return found

    def _domains(self) -> dict[tuple[str, int], _Domain]:
        given: dict[tuple[str, int], list[Any]] = {of: [] for of in self.class_of.values()}
        for name, pair in self.begin.items():
            for column, words in enumerate(pair):
                given[self.class_of[name, column]].append(words)
        for (k, place), (targets, sources) in self.edges.items():
            one = self.products[k]
            given[self.class_of[one.target, place]].append(targets)
            given[self.class_of[one.source, one.sides[place].column]].append(sources)
        some = {of: [words for words in columns if len(words)] for of, columns in given.items()}
        ends = [torch.stack(torch.aminmax(words)) for columns in some.values() for words in columns]
        read = iter(torch.stack(ends).tolist() if ends else ())
        found = {}
        for of, columns in some.items():
            bounds = [next(read) for _ in columns]
            low, high = min((b[0] for b in bounds), default=0), max((b[1] for b in bounds), default=0)
            if low >= 0 and high < SPREAD * sum(map(len, columns)) + FEW:
                found[of] = _Domain(high + 1)
            else:
                values = torch.unique(torch.cat(columns))
                found[of] = _Domain(len(values), values)
        return found

    def domain(self, name: str, column: int) -> _Domain:
        return self.domains[self.class_of[name, column]]

    def width(self, name: str, column: int) -> int:
        """Words of 32 bits of rows whose bits are the values of a column."""
        return 2 * words_for(self.domain(name, column).size)

    # Whether, and how

    @cached_property
    def passing(self) -> dict[str, int] | None:
        """relation -> the column that all products leave alone; None if there is no such."""
        found: dict[str, int] = {}
        for one in self.products:
            through = [(side.column, place) for place, side in enumerate(one.sides) if side.edges is None]
            if len(through) == 1:
                ((source, target),) = through
                if found.setdefault(one.source, source) != source or found.setdefault(one.target, target) != target:
                    return None
        for _ in self.products:
            for one in self.products:
                if all(side.edges is None for side in one.sides) and one.source in found:
                    column = found[one.source]
                    place = next(place for place, side in enumerate(one.sides) if side.column == column)
                    if found.setdefault(one.target, place) != place:
                        return None
        is_known = all(name in found for name in self.relations)
        two_sided = any(all(side.edges is not None for side in one.sides) for one in self.products)
        return found if is_known and not two_sided else None

    @cached_property
    def number_of_edges(self) -> int:
        return sum(len(targets) for targets, _ in self.edges.values())

    def fits(self) -> bool:
        """Whether matrices fit in memory, and are not so large that pairs would be faster."""
        size = sum(4 * self.domain(name, 0).size * self.width(name, 1) for name in self.relations)
        size = max(size, sum(4 * self.domain(name, 1).size * self.width(name, 0) for name in self.relations))
        most = MOST_BYTES
        if self.device.type == "cuda":
            most = torch.cuda.mem_get_info(self.device)[0] // SHARE
        return size <= most and (self.is_condensed or size <= ROUND_BYTES)

    @property
    def is_condensed(self) -> bool:
        return self.passing is not None and self.number_of_edges <= MOST_EDGES

    def solved(self) -> tuple[list[Any], str]:
        """[relation] matrices, a row for each value of the first column, and how they were found."""
        shapes = [f"{name} {' x '.join(f'{self.domain(name, c).size:,}' for c in (0, 1))}" for name in self.relations]
        if self.is_condensed:
            assert self.passing is not None
            matrices, how = self.by_components(self.passing)
        else:
            matrices, how = self.by_rounds()
        return matrices, f"matrices of bits, {', '.join(shapes)}; {how}"

    def filled(self, name: str, passing: int) -> Any:
        """The pairs before the recursion; the bits are the values of the column that passes."""
        rows, columns = (self.domain(name, c).numbers(self.begin[name][c]) for c in (1 - passing, passing))
        return bits.fill(rows, columns, self.domain(name, 1 - passing).size, self.width(name, passing))

    def numbered(self, k: int, place: int) -> Pair:
        """The edges of a side as numbers of values."""
        one = self.products[k]
        targets, sources = self.edges[k, place]
        column = one.sides[place].column
        return self.domain(one.target, place).numbers(targets), self.domain(one.source, column).numbers(sources)

    # Inclusions of rows

    def by_components(self, passing: dict[str, int]) -> tuple[list[Any], str]:
        first, rows = {}, 0
        for name in self.relations:
            first[name] = rows
            rows += self.domain(name, 1 - passing[name]).size
        targets, sources = [], []
        for k, one in enumerate(self.products):
            place = 1 - passing[one.target]
            if one.sides[place].edges is None:
                own = other = np.arange(self.domain(one.target, place).size)
            else:
                own, other = (numbers.cpu().numpy() for numbers in self.numbered(k, place))
            targets.append(own + first[one.target])
            sources.append(other + first[one.source])
        condensed = Condensed.of(first, *from_edges(rows, np.concatenate(targets), np.concatenate(sources)))
        words = torch.cat([self.filled(name, passing[name]) for name in self.relations])
        levels = _Levels(condensed)
        is_here = self.device.type == "cpu" and not bits.has_kernels(self.device)
        if is_here or levels.seconds_on_host(words) < levels.seconds_on_device(words):
            words, how = levels.on_host(words), "on the host"
        else:
            words, how = levels.on_device(words), f"{levels.count:,} levels"
        found = []
        for name in self.relations:
            number = self.domain(name, 1 - passing[name]).size
            part = words[first[name] : first[name] + number]
            if passing[name] == 0:
                part = bits.transposed(part, self.domain(name, 0).size, self.width(name, 1))
            found.append(part)
        return found, f"{condensed.count:,} components, {how}"

    # Rounds

    def by_rounds(self) -> tuple[list[Any], str]:
        state = {name: self.filled(name, 1) for name in self.relations}
        graphs = {key: self.graph(*key) for key in self.edges}
        rounds, is_new = 0, True
        while is_new:
            news = []
            for k, one in enumerate(self.products):
                more = self.product(k, one, state[one.source], graphs)
                both = state[one.target] | more
                news.append((both != state[one.target]).any())
                state[one.target] = both
            rounds += 1
            is_new = bool(torch.stack(news).any())
        return [state[name] for name in self.relations], f"{rounds:,} rounds"

    def product(self, k: int, one: Product, words: Any, graphs: dict[tuple[int, int], Pair]) -> Any:
        """What a product makes of a matrix of its source."""
        names = (one.source, one.sides[0].column), (one.source, one.sides[1].column)
        if one.sides[0].column == 1:
            words = bits.transposed(words, self.domain(*names[0]).size, self.width(*names[1]))
        if (k, 0) in graphs:
            words = self.included(words, (one.target, 0), graphs[k, 0])
        if (k, 1) in graphs:
            words = bits.transposed(words, self.domain(*names[1]).size, self.width(one.target, 0))
            words = self.included(words, (one.target, 1), graphs[k, 1])
            words = bits.transposed(words, self.domain(one.target, 0).size, self.width(one.target, 1))
        return words

    def included(self, words: Any, of: tuple[str, int], graph: Pair) -> Any:
        number = self.domain(*of).size
        found = torch.zeros((number, words.shape[1]), dtype=torch.int32, device=self.device)
        bits.include(found, words, *graph, 0, number)
        return found

    def graph(self, k: int, place: int) -> Pair:
        """(offsets, sources) of the edges of a side, by target."""
        targets, sources = self.numbered(k, place)
        targets, order = torch.sort(targets)
        size = self.domain(self.products[k].target, place).size
        return torch.searchsorted(targets, torch.arange(size + 1, device=self.device)), sources[order]


class _Levels:
    """Components of rows by the length of the longest path of inclusions that they begin.

    order  [place] components, level after level
    ends   [level + 1] where each begins
    """

    def __init__(self, condensed: Condensed):
        self.condensed, count = condensed, condensed.count
        component = np.empty(condensed.rows, np.int64)
        component[condensed.order] = np.repeat(np.arange(count), np.diff(condensed.bounds))
        children, level = component[condensed.links], np.zeros(count, np.int64)
        heights(condensed.ends, children, level)
        self.order = np.argsort(level, kind="stable")
        self.ends = np.searchsorted(level[self.order], np.arange(level.max(initial=0) + 2))
        self.place = np.empty(count, np.int64)
        self.place[self.order] = np.arange(count)
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
        found = words.cpu().contiguous()
        include_on_host(self.condensed, found.numpy().reshape(-1).view(np.uint64), words.shape[1] // 2, lambda: None)
        return found.to(words.device)

    def on_device(self, words: Any) -> Any:
        """Each component is a row, which its rows and then those of its links go into; its rows become that one."""
        condensed, device = self.condensed, words.device

        def moved(array: np.ndarray) -> Any:
            return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(device)

        def graph(starts: np.ndarray, sources: np.ndarray) -> Pair:
            """Edges of components by their places."""
            sizes = np.diff(starts)[self.order]
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            at = np.repeat(starts[:-1][self.order] - offsets[:-1], sizes) + np.arange(offsets[-1])
            return moved(offsets), moved(sources[at])

        found = torch.zeros((condensed.count, words.shape[1]), dtype=torch.int32, device=device)
        bits.include(found, words, *graph(condensed.bounds, condensed.order), 0, condensed.count)
        links = graph(condensed.ends, self.place[self.children])
        for start, stop in zip(self.ends[1:-1].tolist(), self.ends[2:].tolist()):
            bits.include(found, found, *links, start, stop)
        return found[moved(self.place[self.component])]
