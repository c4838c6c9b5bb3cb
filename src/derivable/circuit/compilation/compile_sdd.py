"""Formulas to sentential decision diagrams through PySDD (Darwiche 2011; Choi and Darwiche 2013).

The vtree comes from an elimination order (`elimination`); clauses are conjoined bottom up along it, each
at the lowest vtree node that covers it; when the diagram grows past a bound, the vtree is minimised and
the bound set to twice what is left. Measured in docs/decisions/021-sdd-strategy.md.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from derivable.circuit.compilation.compile_process import PROGRESS, run_worker, work_folder
from derivable.circuit.compilation.elimination import balanced_vtree, elimination_vtree
from derivable.circuit.compilation.long_clauses import narrowed
from derivable.circuit.files.sdd_objects import export, manager_of
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.graph.builder import circuit_from_arrays
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.vtree import Vtree
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.diagnostics import DomainError
from derivable.core.progress import NEVER, Deadline

VTREES = ("elimination", "balanced", "right")
# Sizes in SDD elements. Minimisation below the first costs more than it saves (decision 021).
MINIMISE_FROM = 3_000
COLLECT_FROM = 200_000
FINISH_UP_TO = 20_000
SMALL_VARIABLES = 14  # an SDD over so few variables is compiled within milliseconds, in this process
INPUT, OPTIONS, OUTPUT = "input.npz", "options.json", "output.npz"

Report = Callable[[int, int, str], None]


def _save(graph: AndOrGraph, path: Path) -> None:
    np.savez(path, *graph.arrays)


def _load(path: Path) -> AndOrGraph:
    with np.load(path) as data:
        return AndOrGraph(*(data[name] for name in data.files))


def compile_sdd(
    graph: AndOrGraph,
    num_variables: int,
    *,
    blocks: Sequence[Sequence[int]] = (),
    vtree: str | Vtree = "elimination",
    minimise: bool = True,
    deadline: Deadline = NEVER,
    progress: bool | None = None,
    memory_limit: int | None = None,
) -> Circuit:
    """The roots of a graph as canonical SDD nodes of one manager, in one circuit; origin "sdd".

    graph   without negations, children before parents
    blocks  sets of variables of which exactly one is true; a root that mentions one of them is conjoined
            with that constraint, and the variables are kept adjacent in the first vtree
    vtree   "elimination", "balanced" or "right" (both in order of first mention), or one to keep and not to minimise
    Raises CompileTimeout, CompilerError.
    """
    variables = np.unique(np.abs(graph.literal[graph.kind == LITERAL]))
    mentioned = len(variables)
    options = {"blocks": [list(map(int, block)) for block in blocks], "vtree": vtree, "minimise": minimise}
    if isinstance(vtree, Vtree):
        for variable in np.setdiff1d(variables, vtree.variable)[:1]:
            raise DomainError(f"variable {variable} is not in the vtree", hint="it has a leaf for every variable")
        tree = vtree.ordered()
        columns = [column.tolist() for column in (tree.left, tree.right, tree.variable)]
        options |= {"vtree": columns, "minimise": False}
    graph = narrowed(graph)
    if mentioned + sum(map(len, blocks)) <= SMALL_VARIABLES and graph.num_nodes <= 1000:
        result = sdd_graph(graph, options, None)
    else:
        with work_folder() as folder:
            _save(graph, folder / INPUT)
            (folder / OPTIONS).write_text(json.dumps(options))
            run_worker(
                "sdd",
                folder,
                name="PySDD",
                deadline=deadline,
                progress=progress,
                memory_limit=memory_limit,
                size=f"{graph.num_nodes:,} nodes over {mentioned:,} variables",
                hint="try compiler='d4', which is faster on most formulas",
                after_crash="try vtree='balanced', minimise=False, or compiler='d4'",
            )
            result = _load(folder / OUTPUT)
    return circuit_from_arrays(*result.arrays, num_variables, origin="sdd")


def work(folder: Path) -> None:
    """The job of the child process."""
    options = json.loads((folder / OPTIONS).read_text())
    with open(folder / PROGRESS, "w") as file:

        def report(done: int, total: int, note: str) -> None:
            file.write(f"{done} {total} {note}\n")
            file.flush()

        _save(sdd_graph(_load(folder / INPUT), options, report), folder / OUTPUT)


def sdd_graph(graph: AndOrGraph, options: dict, report: Report | None) -> AndOrGraph:
    """Compile in this process."""
    compilation = _Compilation(graph, options, report)
    return export(compilation.run(), compilation.outer)


class _Compilation:
    """One manager and the growing diagrams in it. Every node kept across an operation is referenced."""

    def __init__(self, graph: AndOrGraph, options: dict, report: Report | None):
        self.kind, self.literal, offsets, children, self.roots = (array.tolist() for array in graph.arrays)
        self.rows = [children[start:stop] for start, stop in itertools.pairwise(offsets)]
        self.report = report
        self.minimise = options["minimise"]
        self.blocks: list[list[int]] = options["blocks"]
        self.bound = MINIMISE_FROM
        self.done = 0
        self.flat = self._flat_clauses()
        # PySDD numbers variables 1..n without gaps; here they are numbered by first mention.
        self.to_outer: list[int] = []
        self.to_inner: dict[int, int] = {}
        if isinstance(options["vtree"], str):
            self._number_variables()
            vtree = self._vtree(options["vtree"])
        else:
            vtree = self._kept_vtree(*options["vtree"])
        self.above = vtree.parents.tolist()
        self.leaf = {variable: node for node, variable in enumerate(vtree.variable.tolist()) if variable}
        self.depth = [0] * len(self.above)
        for node in range(len(self.above) - 2, -1, -1):
            self.depth[node] = self.depth[self.above[node]] + 1
        self.manager = manager_of(vtree)

    def _number_variables(self) -> None:
        block_of = {variable: block for block in self.blocks for variable in block}
        for kind, literal in zip(self.kind, self.literal):
            if kind == LITERAL and abs(literal) not in self.to_inner:
                for variable in block_of.get(abs(literal), [abs(literal)]):
                    self.to_outer.append(variable)
                    self.to_inner[variable] = len(self.to_outer)

    def _flat_clauses(self) -> list[list[int]] | None:
        """The clauses if this is a CNF (one root, an and-node of literals and or-nodes of literals), else None."""
        if len(self.roots) != 1 or self.blocks or self.kind[self.roots[0]] != AND:
            return None
        clauses = []
        for child in self.rows[self.roots[0]]:
            row = self.rows[child] if self.kind[child] == OR else [child]
            if any(self.kind[one] != LITERAL for one in row):
                return None
            clauses.append([self.literal[one] for one in row])
        return clauses

    def _kept_vtree(self, left: list[int], right: list[int], variable: list[int]) -> Vtree:
        """A tree of the caller's, with variables numbered without gaps."""
        self.to_outer = sorted(filter(None, variable))
        self.to_inner = {outer: inner for inner, outer in enumerate(self.to_outer, start=1)}
        numbers = [self.to_inner.get(outer, 0) for outer in variable]
        below, beside, leaves = (np.array(column, np.int32) for column in (left, right, numbers))
        return Vtree(below, beside, leaves, len(variable) - 1)

    def _vtree(self, strategy: str) -> Vtree:
        count = len(self.to_outer)
        if strategy == "balanced":
            return balanced_vtree(range(1, max(1, count) + 1))
        if strategy == "right":
            return Vtree.right_linear(range(1, max(1, count) + 1))
        blocks: list[list[int]] = []
        block_of_variable: dict[int, int] = {}
        for block in self.blocks:
            if block[0] in self.to_inner:
                block_of_variable |= {self.to_inner[variable]: len(blocks) for variable in block}
                blocks.append([self.to_inner[variable] for variable in block])
        for variable in range(1, max(1, count) + 1):
            if variable not in block_of_variable:
                block_of_variable[variable] = len(blocks)
                blocks.append([variable])
        if self.flat is not None:
            edges = [[block_of_variable[self.to_inner[abs(one)]] for one in clause] for clause in self.flat]
            return elimination_vtree(blocks, edges)
        edges, extra = self._gate_edges(block_of_variable, len(blocks))
        return elimination_vtree(blocks, edges, extra)

    def _gate_edges(self, block_of_variable: dict[int, int], start: int) -> tuple[list[list[int]], int]:
        """Hyperedges of the gates, a wide gate as a chain of binary ones so that it makes no clique."""
        point: list[int] = []
        edges: list[list[int]] = []
        fresh = start
        for node, kind in enumerate(self.kind):
            if kind == LITERAL:
                point.append(block_of_variable[self.to_inner[abs(self.literal[node])]])
                continue
            row = list(dict.fromkeys(point[child] for child in self.rows[node]))
            last = -1
            for child in row:
                point_here, fresh = fresh, fresh + 1
                edges.append([point_here, child] if last < 0 else [last, point_here, child])
                last = point_here
            if last < 0:
                last, fresh = fresh, fresh + 1
            point.append(last)
        return edges, fresh - start

    # Operations

    def literal_node(self, outer: int) -> Any:
        inner = self.to_inner[abs(outer)]
        return self.manager.literal(inner if outer > 0 else -inner)

    def both(self, left: Any, right: Any) -> Any:
        """Conjunction; gives up the references to both."""
        return self._kept(left & right, left, right)

    def either(self, left: Any, right: Any) -> Any:
        return self._kept(left | right, left, right)

    def _kept(self, result: Any, *parts: Any) -> Any:
        result.ref()
        for part in parts:
            part.deref()
        if self.minimise and self.manager.live_size() > self.bound:
            self.tick("minimising")
            self.manager.minimize_limited()
            self.bound = max(self.bound, 2 * self.manager.live_size())
        elif self.manager.dead_size() > COLLECT_FROM and self.manager.dead_size() > self.manager.live_size():
            self.manager.garbage_collect()
        return result

    def tick(self, note: str = "") -> None:
        if self.report:
            self.report(self.done, self.total, note or f"{self.manager.live_size():,} elements")

    # The run

    def run(self) -> list[Any]:
        """Convert every node once, in order, each dropped after its last use.

        The value of a node is its function and, for every block it mentions, that exactly one variable
        of the block is true: constrained from the leaves on, a choice of n values has n cases, not 2 ** n.
        """
        self.total = len(self.kind) + sum(len(row) for row in self.rows if len(row) > 2)
        uses = [0] * len(self.kind)
        for row in self.rows:
            for child in row:
                uses[child] += 1
        for root in self.roots:
            uses[root] += 1
        block_of = {variable: number for number, block in enumerate(self.blocks) for variable in block}
        constraints: dict[int, Any] = {}
        value: list[Any] = [None] * len(self.kind)
        cover: list[int] = [-1] * len(self.kind)  # the lowest node of the first vtree over all its variables
        below: list[frozenset[int]] = [frozenset()] * len(self.kind)  # the blocks it mentions
        for node, kind in enumerate(self.kind):
            row = self.rows[node]
            if kind == LITERAL:
                variable = abs(self.literal[node])
                value[node] = self.literal_node(self.literal[node])
                cover[node] = self.leaf[self.to_inner[variable]]
                if variable in block_of:
                    number = block_of[variable]
                    if number not in constraints:
                        constraints[number] = self._exactly_one(self.blocks[number])
                    below[node] = frozenset([number])
                    cover[node] = self._cover(self.leaf[self.to_inner[one]] for one in self.blocks[number])
                    value[node] = self._with_constraints(value[node], [constraints[number]])
            elif kind in (FALSE, TRUE):
                value[node] = self.manager.true() if kind == TRUE else self.manager.false()
            else:
                below[node] = _union([below[child] for child in row])
                cover[node] = self._cover(cover[child] for child in row)
                parts = [(cover[child], value[child]) for child in row]
                for position, child in enumerate(row):
                    value[child].ref()
                    missing = below[node] - below[child] if kind == OR else ()
                    if missing:
                        needed = [constraints[number] for number in sorted(missing)]
                        parts[position] = (cover[node], self._with_constraints(value[child], needed))
                value[node] = self._gate(kind == AND, parts)
                for child in row:
                    uses[child] -= 1
                    if uses[child] == 0:
                        value[child].deref()
                        value[child] = None
            self.done += 1
            self.tick()
        roots = [value[root] for root in self.roots]
        if self.minimise and 0 < self.manager.live_size() <= FINISH_UP_TO and self.report is not None:
            self.tick("minimising")
            self.manager.garbage_collect()
            self.manager.minimize_limited()
        return roots

    def _with_constraints(self, node: Any, constraints: list[Any]) -> Any:
        """Gives up the reference to `node`, not those to the constraints."""
        for constraint in constraints:
            constraint.ref()
            node = self.both(node, constraint)
        return node

    def _cover(self, nodes: Iterable[int]) -> int:
        """The lowest vtree node above all of these; -1 of none. Constants (-1) have no place."""
        found = -1
        for node in nodes:
            if found < 0 or node < 0:
                found = max(found, node)
                continue
            while found != node:
                if self.depth[found] >= self.depth[node]:
                    found = self.above[found]
                else:
                    node = self.above[node]
        return found

    def _gate(self, conjunction: bool, parts: list[tuple[int, Any]]) -> Any:
        """Fold referenced parts, given with their covers, bottom up along the vtree.

        What meets at a vtree node is combined there, the smallest first, and moves up as one; so every
        operation is on functions of as few variables as possible.
        """
        if not parts:
            return self.manager.true() if conjunction else self.manager.false()
        combine = self.both if conjunction else self.either
        waiting: dict[int, list[Any]] = {}
        for place, part in parts:
            waiting.setdefault(max(place, 0), []).append(part)
        heap = [(-self.depth[place], place) for place in waiting]
        heapq.heapify(heap)
        while True:
            _, place = heapq.heappop(heap)
            group = waiting.pop(place)
            if len(group) > 1:
                ranked = [(_size(one), number, one) for number, one in enumerate(group)]
                heapq.heapify(ranked)
                for number in range(len(group), 2 * len(group) - 1):
                    joined = combine(heapq.heappop(ranked)[2], heapq.heappop(ranked)[2])
                    heapq.heappush(ranked, (_size(joined), number, joined))
                    if len(parts) > 2:
                        self.done += 1
                        self.tick()
                group = [ranked[0][2]]
            if not waiting:
                return group[0]
            up = self.above[place]
            if up not in waiting:
                waiting[up] = []
                heapq.heappush(heap, (-self.depth[up], up))
            waiting[up].append(group[0])

    def _exactly_one(self, block: Iterable[int]) -> Any:
        none, one = self.manager.true(), self.manager.false()
        for variable in block:
            yes, no = self.literal_node(variable), self.literal_node(-variable)
            none.ref()
            one = self.either(self.both(one, no), self.both(none, yes))
            none = self.both(none, no)
        none.deref()
        return one

    def outer(self, inner: int) -> int:
        return self.to_outer[inner - 1] if inner > 0 else -self.to_outer[-inner - 1]


def _union(sets: list[frozenset[int]]) -> frozenset[int]:
    distinct = set(sets)
    return distinct.pop() if len(distinct) == 1 else frozenset().union(*distinct)


def _size(node: Any) -> int:
    return node.size() if node.is_decision() else 0
