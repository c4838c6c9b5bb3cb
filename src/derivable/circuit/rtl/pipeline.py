"""A circuit as a pipeline: sums and products of two values, each in the cycle in which both are there.

Printed form, an operation a row, with the cycle in which its value is in a register and its bits:

    3 = x2                 cycle  0   9 bits
    5 = product 0 3        cycle  2   9 bits
    6 = sum 5 2            cycle  3   9 bits   root 0
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

import numpy as np

from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.rtl.arithmetic import CYCLES, RANGE, Arithmetic, Bounds, Log, Real
from derivable.core.and_or import AND, FALSE, LITERAL, TRUE
from derivable.core.diagnostics import LimitError

# The bits of a word of the host, and of a factor, whose products the golden model has in int64.
WORD, FACTOR = 32, 31


@dataclass(frozen=True)
class Operation:
    """A value of the pipeline.

    kind    "literal", "constant", "product" or "sum"
    a, b    operations that come before; of a literal, `a` is its signed variable; of a constant, its code
    cycle   in which the value stands in a register, that of the literals being 0
    bounds  of the value
    """

    kind: str
    a: int
    b: int
    cycle: int
    bounds: Bounds


@dataclass(frozen=True)
class Pipeline:
    """The operations of a circuit, operands first.

    arithmetic  of its codes
    operations  [operation]
    roots       [root]: operations
    latency     cycles from weights to values
    """

    arithmetic: Arithmetic
    operations: tuple[Operation, ...]
    roots: tuple[int, ...]
    latency: int = field(default=0)

    def bits(self, of: int) -> int:
        """Bits of the code of an operation."""
        if isinstance(self.arithmetic, Log):
            return self.arithmetic.width
        return max(1, self.operations[of].bounds.most.bit_length())

    @property
    def literals(self) -> list[int]:
        """The signed variables whose weights go in, in order."""
        return [operation.a for operation in self.operations if operation.kind == "literal"]

    def count(self, kind: str) -> int:
        return sum(operation.kind == kind for operation in self.operations)

    def __str__(self) -> str:
        rows = []
        for number, of in enumerate(self.operations):
            what = {"literal": f"{'-' if of.a < 0 else ''}x{abs(of.a)}", "constant": f"constant {of.a}"}
            text = f"{number} = {what.get(of.kind, f'{of.kind} {of.a} {of.b}')}"
            roots = "".join(f"   root {root}" for root, at in enumerate(self.roots) if at == number)
            rows.append(f"{text:<22} cycle {of.cycle:>2} {self.bits(number):>3} bits{roots}")
        return "\n".join(rows)


def pipeline(circuit: Circuit, semiring: str, bits: int, is_normalised: bool) -> Pipeline:
    """The pipeline of a circuit.

    is_normalised  the weights of the two literals of a variable are at most 1 together, so that every value of a
                   decomposable and deterministic circuit is at most 1

    Raises LimitError where numbers have more bits than hardware of this kind takes.
    """
    is_bounded = is_normalised and circuit.is_decomposable and circuit.determinism.holds
    made = _pipeline(circuit, Real(bits) if semiring == "real" else Log(bits), is_bounded)
    if isinstance(made.arithmetic, Log):
        most = max(operation.bounds.value for operation in made.operations)
        bias = math.ceil(math.log2(most)) if 1 < most < math.inf else 0
        if most == math.inf or bias >= 1 << RANGE:
            raise LimitError(f"a value of the circuit may be 2^{bias or 1024}, beyond codes of {RANGE} bits")
        if bias:
            made = _pipeline(circuit, Log(bits, bias), is_bounded)
    _check(made)
    return made


def _check(made: Pipeline) -> None:
    hint = "give fewer bits="
    for number, operation in enumerate(made.operations):
        if made.bits(number) > WORD - 1:
            raise LimitError(f"a value of the circuit has {made.bits(number)} bits, more than {WORD - 1}", hint=hint)
        if operation.kind == "product" and isinstance(made.arithmetic, Real):
            wide = max(made.bits(operation.a), made.bits(operation.b))
            if wide > FACTOR:
                raise LimitError(f"a factor of the circuit has {wide} bits, more than {FACTOR}", hint=hint)


def _pipeline(circuit: Circuit, arithmetic: Arithmetic, is_bounded: bool) -> Pipeline:
    operations: list[Operation] = []
    cycles = CYCLES[arithmetic.name]

    roundings = 0

    def add(kind: str, a: int, b: int, cycle: int, bounds: Bounds) -> int:
        nonlocal roundings
        roundings += kind in ("literal", "product")
        if is_bounded:
            bounds = arithmetic.at_most_one(bounds, roundings)
        operations.append(Operation(kind, a, b, cycle, bounds))
        return len(operations) - 1

    def combine(kind: str, parts: list[int]) -> int:
        """The operands that are there first come first, so that few registers wait."""
        waiting = [(operations[part].cycle, part) for part in parts]
        heapq.heapify(waiting)
        while len(waiting) > 1:
            (_, a), (cycle, b) = heapq.heappop(waiting), heapq.heappop(waiting)
            rule = arithmetic.product_bounds if kind == "product" else arithmetic.sum_bounds
            made = add(kind, a, b, cycle + cycles[kind], rule(operations[a].bounds, operations[b].bounds))
            heapq.heappush(waiting, (operations[made].cycle, made))
        return waiting[0][1]

    of_node: list[int] = []
    needed = circuit.needed()
    for node, kind in enumerate(circuit.kind.tolist()):
        children = circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]].tolist()
        if not needed[node]:
            of_node.append(-1)
        elif kind in (FALSE, TRUE):
            code = arithmetic.one if kind == TRUE else arithmetic.zero
            of_node.append(add("constant", code, 0, 0, arithmetic.constant(kind == TRUE)))
        elif kind == LITERAL:
            of_node.append(add("literal", int(circuit.literal[node]), 0, 0, arithmetic.literal()))
        else:
            of_node.append(combine("product" if kind == AND else "sum", [of_node[child] for child in children]))
    roots = tuple(of_node[root] for root in circuit.roots.tolist())
    return Pipeline(arithmetic, tuple(operations), roots, max((operations[root].cycle for root in roots), default=0))


def run(made: Pipeline, codes: np.ndarray) -> np.ndarray:
    """The golden model: codes of literals, int64 [row, literal], to those of roots, int64 [row, root]."""
    values: list[np.ndarray] = []
    arithmetic, literal = made.arithmetic, 0
    for operation in made.operations:
        if operation.kind == "literal":
            values.append(codes[:, literal])
            literal += 1
        elif operation.kind == "constant":
            values.append(np.full(len(codes), operation.a, np.int64))
        else:
            rule = arithmetic.product if operation.kind == "product" else arithmetic.sum
            values.append(rule(values[operation.a], values[operation.b]))
    return np.stack([values[root] for root in made.roots], 1) if made.roots else np.zeros((len(codes), 0), np.int64)
