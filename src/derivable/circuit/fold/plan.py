"""The evaluation plan of a circuit: immutable, made once, kept as long as the circuit lives."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.kernels.level_passes import COUNT, FACTORS, FIRST, PAIRS, SINGLES
from derivable.circuit.kernels.levels_plan import plan_program
from derivable.core.and_or import FALSE, LITERAL
from derivable.device.cpu.memory import LINE_BYTES, empty

# Kept scratch buffers per kind.
_KEPT = 8


@dataclass(frozen=True, eq=False)
class Plan:
    """What the kernels need, see `kernels.levels_plan`; and scratch buffers that calls take and put back.

    graph       the arrays of what was planned
    degree      the largest number of literals in a product, with multiplicity
    count_bits  log2 of the largest number of products of literals that a node sums
    operations  edges of the circuit
    longest     factors of the longest product, at least 2
    most_terms  of a sum, at least 2
    has_negation  of nodes that are no literals
    """

    graph: AndOrGraph
    runs: np.ndarray
    terms: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    root_slots: np.ndarray
    num_slots: int
    degree: float
    count_bits: float
    operations: int
    num_levels: int
    longest: int
    most_terms: int
    has_negation: bool
    scratch: dict = field(default_factory=dict, repr=False)
    others: dict = field(default_factory=dict, repr=False)

    @property
    def num_variables(self) -> int:
        return len(self.positive)

    @property
    def num_roots(self) -> int:
        return len(self.root_slots)

    @property
    def budget(self) -> float:
        """Bits by which a root may lie below one for the log semiring in the linear domain; see decision 030."""
        slack = math.log2(max(1.0, self.degree)) + math.log2(max(1, self.operations + self.num_slots))
        return 800.0 - self.count_bits - slack - math.log2(max(1, self.num_roots))

    @property
    def bound(self) -> float:
        """Nats within which log weights are computed by scaled floats, so that their exponents fit; decision 030."""
        return min(2.0**39, 2.0**58 / max(1.0, self.degree))

    def leaves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(node, variable, sign) of the literals: node ids, columns of the weights, and whether they are positive."""
        node = np.flatnonzero(self.graph.kind == LITERAL)
        literal = self.graph.literal[node]
        return node, np.abs(literal) - 1, literal > 0

    def scratch_of(self, lanes: int, *buffers: tuple[int, type]) -> Scratch:
        """Buffers [row], or [row, lane] for more lanes than one, of (rows, dtype) each."""
        key = lanes, buffers
        return self.scratch.get(key) or self.scratch.setdefault(key, Scratch(lanes, buffers))

    def in_order(self) -> Plan:
        """The plan whose sums have their terms in the order of the children, for semirings where that shows."""
        return self._other("in_order", lambda: make_plan(self.graph, self.num_variables, in_order=True))

    def of_all_nodes(self) -> Plan:
        """The plan whose roots are all nodes, for questions that need the value of each."""
        every = np.arange(self.graph.num_nodes)
        return self._other("of_all_nodes", lambda: make_plan(self.graph.with_roots(every), self.num_variables))

    def _other(self, name: str, make: Callable[[], Plan]) -> Plan:
        return self.others.get(name) or self.others.setdefault(name, make())


class Scratch:
    """Buffers of one kind that calls take and put back; more callers at the same time allocate their own."""

    def __init__(self, lanes: int, buffers: Sequence[tuple[int, type]]):
        self._shapes = [((rows,) if lanes == 1 else (rows, lanes), dtype) for rows, dtype in buffers]
        self._kept: list[tuple[np.ndarray, ...]] = []

    def take(self) -> tuple[np.ndarray, ...]:
        try:
            return self._kept.pop()
        except IndexError:
            return tuple(aligned(shape, dtype) for shape, dtype in self._shapes)

    def put_back(self, buffers: tuple[np.ndarray, ...]) -> None:
        if len(self._kept) < _KEPT:
            self._kept.append(buffers)


def aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """An uninitialised array that starts on a cache line."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = empty(size + LINE_BYTES, np.uint8)
    start = -raw.ctypes.data % LINE_BYTES
    return raw[start : start + size].view(dtype).reshape(shape)


_plans: weakref.WeakKeyDictionary[AndOrGraph, Plan] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def plan_of(graph: AndOrGraph, num_variables: int | None = None) -> Plan:
    """The plan of a circuit or another graph whose children come first, made on first use.

    num_variables  columns of the weights; None for those of a circuit
    """
    plan = _plans.get(graph)
    if plan is None:
        plan = make_plan(graph, num_variables)
        with _lock:
            plan = _plans.setdefault(graph, plan)
    return plan


def make_plan(graph: AndOrGraph, num_variables: int | None = None, in_order: bool = False) -> Plan:
    count: int = graph.num_variables if num_variables is None else num_variables  # type: ignore[attr-defined]
    runs, terms, positive, negative, root_slots, num_slots, statistics = plan_program(*graph.arrays, count, in_order)
    degree, products, operations, num_levels = statistics.tolist()
    return Plan(
        # Not the graph itself, which would live as long as the plan that is kept for it.
        graph=AndOrGraph(*graph.arrays),
        runs=runs,
        terms=terms,
        positive=positive,
        negative=negative,
        root_slots=root_slots,
        num_slots=num_slots,
        degree=degree,
        count_bits=math.log2(products) if math.isfinite(products) else math.inf,
        operations=int(operations),
        num_levels=int(num_levels),
        longest=max(2, int(runs[:, FACTORS].max(initial=0))),
        most_terms=max(2, int((runs[:, PAIRS] + runs[:, SINGLES]).max(initial=0))),
        has_negation=bool((runs[:, FACTORS] < 0).any()),
    )


def describe_plan(circuit: AndOrGraph) -> str:
    """What the kernels do with this circuit: slots, runs by shape, bytes."""
    plan = plan_of(circuit)
    inner = int(plan.runs[:, COUNT].sum())
    first = int(plan.runs[:, FIRST].min(initial=plan.num_slots - 1))
    rows = [
        f"{circuit.num_nodes} nodes, {circuit.num_edges} edges -> {inner} inner slots in {plan.num_levels - 1} levels, "
        f"{first - 2} leaves; {len(plan.terms)} operands, {len(plan.runs)} runs",
        f"plan {(plan.runs.nbytes + plan.terms.nbytes) / 1024:.1f} KiB, values {plan.num_slots * 8 / 1024:.1f} KiB "
        f"a row, degree {plan.degree:.0f}, at most 2^{plan.count_bits:.1f} products",
        f"log semiring in the linear domain down to roots of 2^-{max(0.0, plan.budget):.0f}, scaled floats beyond",
    ]
    shapes: dict[str, int] = {}
    for run in plan.runs.tolist():
        if run[FACTORS] > 0:
            name = f"product of {run[FACTORS]}"
        else:
            parts = []
            if run[PAIRS]:
                parts.append(f"{run[PAIRS]} pairs" if run[PAIRS] > 1 else "1 pair")
            if run[SINGLES]:
                parts.append(f"{run[SINGLES]} singles" if run[SINGLES] > 1 else "1 single")
            name = "sum of " + " and ".join(parts) if len(parts) > 1 or run[PAIRS] != 1 else "product of 2"
        shapes[name] = shapes.get(name, 0) + run[COUNT]
    ordered = sorted(shapes.items(), key=lambda entry: -entry[1])
    rows += [f"  {count:>9}  {name}" for name, count in ordered[:12]]
    if len(ordered) > 12:
        rows.append(f"  {sum(count for _, count in ordered[12:]):>9}  other shapes")
    if bool((circuit.kind[circuit.roots] <= FALSE).any()):
        rows.append("  some roots are false")
    return "\n".join(rows)
