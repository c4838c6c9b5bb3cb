"""Values and derivatives of circuits that are sums of products of tables, by passes over the tables.

Log weights are folded as floats. Sums of nonnegative floats lose nothing but what underflows, at most 2**-1022 times
its derivative for each number, and the pass from the root to the tables has these derivatives. So a value is taken if
that is little of it; otherwise the nodes of the circuit are folded, which have exponents of any size. Real weights are
floats in nodes too, so their values are looked at in the same way only where results were scaled down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.circuit.fold.fold_rows import fold, fold_vjp
from derivable.circuit.fold.literal_weights import LiteralWeights, LogShares
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.elimination_circuit import Blocks, EliminationCircuit
from derivable.circuit.kernels.dense_blocks import fold_blocks, pull_blocks

# Part of a value that underflow may be.
_TINY = 2.0**-60
_LEAST = 2.0**-1022
# Nanoseconds: of a call, of a row and of an entry in it; of an entry that is not zero as nodes, one row at a time or
# many; of making these nodes, for each of them and for each block.
CALL, ROW, ENTRY, NODE, NODE_OF_MANY, MAKING, BLOCK = 4e5, 5e3, 8.0, 15.0, 4.0, 600.0, 1e5

Derivatives = tuple[np.ndarray, np.ndarray, np.ndarray | None]


class _Pass:
    """One row of weights at a time, with buffers of a program that are taken while they are used."""

    def __init__(self, program: Blocks):
        self.program = program
        self.arrays = program.blocks, program.shape, program.first, program.along, program.strides
        try:
            self.buffers = program.scratch.pop()
        except IndexError:
            sizes = program.num_values, len(program.blocks), program.num_values, program.num_room
            self.buffers = *(np.empty(size) for size in sizes), np.empty(program.num_positions, np.int64)

    def __enter__(self) -> _Pass:
        return self

    def __exit__(self, *raised: object) -> None:
        self.program.scratch.append(self.buffers)

    @property
    def tables(self) -> np.ndarray:
        """The entries of all tables, to be written."""
        return self.buffers[0][: len(self.program.cells)]

    def fold(self, is_boolean: bool = False) -> tuple[float, int]:
        """(m, e): the value of the root is m * 2**e."""
        values, scales, _, *room = self.buffers
        _, power = fold_blocks(*self.arrays, values, scales, *room, is_boolean)
        return float(values[-1]), power

    def pull(self, is_boolean: bool = False) -> np.ndarray:
        """The derivatives of m [entry of all tables]; they are overwritten by the next."""
        values, scales, adjoints, *room = self.buffers
        adjoints[:] = 0.0
        adjoints[-1] = 1.0
        pull_blocks(*self.arrays, values, scales, adjoints, *room, is_boolean)
        return adjoints[: len(self.program.cells)]

    def is_possible(self, entries: np.ndarray) -> bool:
        """Whether a product has no factor of zero; entries [entry of all tables] bool: which are not zero."""
        self.tables[:] = entries
        return self.fold(is_boolean=True)[0] > 0.0

    @property
    def is_scaled_down(self) -> bool:
        """Whether large numbers have made others underflow that floats hold, after `fold`."""
        return self.buffers[1].min() < 1.0

    @property
    def is_exact(self) -> bool:
        """Whether underflow is little of the value, after `pull`."""
        values, scales, adjoints, *_ = self.buffers
        with np.errstate(over="ignore", invalid="ignore"):
            # What is scaled down underflows afterwards, and adjoints are those of results as they were before.
            lost = adjoints.max() * _LEAST * len(adjoints) / min(1.0, scales.min())
        return bool(lost <= _TINY * values[-1]) and bool(np.isfinite(values[-1]))

    def by_leaves(self, entries: np.ndarray) -> np.ndarray:
        """The sums [root of the leaves] of numbers of entries."""
        return np.bincount(self.program.cells, entries, self.program.leaves.num_roots)


def folds_tables(circuit: Circuit, rows: int = 1) -> TypeGuard[EliminationCircuit]:
    """Whether a number of rows of weights is folded over the tables of a circuit.

    Where zeros or many rows make nodes cheaper, they are made when the passes before have cost as much as that.
    """
    if not isinstance(circuit, EliminationCircuit):
        return False
    program = circuit.program
    by_tables = CALL + rows * (ENTRY * program.entries + ROW)
    by_nodes = rows * (NODE if rows == 1 else NODE_OF_MANY) * program.alive
    circuit.passes["excess"] = circuit.passes.get("excess", 0.0) + by_tables - by_nodes
    return circuit.passes["excess"] <= MAKING * program.alive + BLOCK * len(program.blocks)


def table_values(
    circuit: Circuit, ring: Semiring, weights: np.ndarray, negatives: np.ndarray | None
) -> np.ndarray | None:
    """Values [row, 1] of the root under weights [row, variable] by passes over tables; None where nodes are to say."""
    if not _is_known(ring, _VALUES) or not folds_tables(circuit, len(weights)):
        return None
    return _VALUES[ring.name](circuit, weights, negatives)


def table_vjp(
    circuit: Circuit, ring: Semiring, weights: np.ndarray, negatives: np.ndarray | None, seeds: np.ndarray | None
) -> Derivatives | None:
    """The same with the adjoints [row, variable] of the weights and of the negative weights, if there are any.

    seeds  [row, 1]; None for ones
    """
    if not _is_known(ring, _DERIVATIVES) or not folds_tables(circuit, len(weights)):
        return None
    return _DERIVATIVES[ring.name](circuit, weights, negatives, seeds)


def _is_known(ring: Semiring, known: Mapping[str, Any]) -> bool:
    return ring.name in known and ring == semirings.get(ring.name)


def _entries_of(
    circuit: EliminationCircuit, ring: Semiring, weights: np.ndarray, negatives: np.ndarray | None
) -> np.ndarray:
    """The values [row, root of the leaves] of the entries of tables."""
    others = None if negatives is None else (negatives,)
    return fold(plan_of(circuit.program.leaves), ring, (weights,), others)[0]


def _pulled(
    circuit: EliminationCircuit, ring: Semiring, weights: np.ndarray, negatives: np.ndarray | None, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """The adjoints [row, variable] of weights and negative weights, from those of entries [row, root of the leaves]."""
    others = None if negatives is None else (negatives,)
    _, (positive,), negative = fold_vjp(plan_of(circuit.program.leaves), ring, (weights,), others, (rows,))
    return positive, None if negative is None else negative[0]


def _values(circuit: EliminationCircuit, weights: np.ndarray, negatives: np.ndarray | None) -> np.ndarray | None:
    leaves = _entries_of(circuit, semirings.real, weights, negatives)
    if not np.isfinite(leaves).all():
        return None
    values = np.empty((len(weights), 1), weights.dtype)
    with _Pass(circuit.program) as tables, np.errstate(all="ignore"):
        for number, row in enumerate(leaves):
            entries = tables.tables[:] = row[circuit.program.cells]
            value, power = tables.fold()
            if tables.is_scaled_down:
                tables.pull()
                if _is_lost(tables, entries):
                    return None
            values[number] = np.ldexp(value, power)
    return values


def _vjp(
    circuit: EliminationCircuit, weights: np.ndarray, negatives: np.ndarray | None, seeds: np.ndarray | None
) -> Derivatives | None:
    leaves = _entries_of(circuit, semirings.real, weights, negatives)
    if not np.isfinite(leaves).all():
        return None
    values, rows = np.empty((len(weights), 1), weights.dtype), np.empty(leaves.shape, weights.dtype)
    with _Pass(circuit.program) as tables, np.errstate(all="ignore"):
        for number, row in enumerate(leaves):
            entries = tables.tables[:] = row[circuit.program.cells]
            value, power = tables.fold()
            derivatives = tables.by_leaves(tables.pull())
            if not np.isfinite(derivatives).all() or (tables.is_scaled_down and _is_lost(tables, entries)):
                return None
            values[number] = np.ldexp(value, power)
            rows[number] = np.ldexp(derivatives, power)
    rows *= 1.0 if seeds is None else seeds
    return values, *_pulled(circuit, semirings.real, weights, negatives, rows)


def _is_lost(tables: _Pass, entries: np.ndarray) -> bool:
    """Whether underflow may be more than little of a value of real entries, after `pull`."""
    # Where signs cancel, the derivatives do not bound it.
    return bool(entries.min(initial=0.0) < 0.0) or not (tables.is_exact or not tables.is_possible(entries > 0.0))


def _log_vjp(
    circuit: EliminationCircuit, weights: np.ndarray, negatives: np.ndarray | None, seeds: np.ndarray | None = None
) -> Derivatives | None:
    made = _log_passes(circuit, weights, negatives)
    if made is None:
        return None
    mantissa, power, rows = made
    rows = (rows if seeds is None else rows * seeds).astype(weights.dtype, copy=False)
    return _logarithms(mantissa, power, weights.dtype), *_pulled(circuit, semirings.log, weights, negatives, rows)


def _log_values(circuit: EliminationCircuit, weights: np.ndarray, negatives: np.ndarray | None) -> np.ndarray | None:
    made = _log_passes(circuit, weights, negatives)
    return None if made is None else _logarithms(*made[:2], weights.dtype)


def _logarithms(mantissa: np.ndarray, power: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return (np.log(mantissa) + power * np.log(2.0)).astype(dtype)


def block_scaled(circuit: Circuit, weights: LiteralWeights) -> tuple[np.ndarray, np.ndarray] | None:
    """(m, e), each [row, 1], for values m * 2**e under weights of at least 0; None where nodes are to say."""
    if not isinstance(circuit, EliminationCircuit) or not circuit.mentions_all:
        return None
    if min(weights.positive.min(initial=0.0), weights.negative.min(initial=0.0)) < 0.0:
        return None
    if not folds_tables(circuit, weights.num_items):
        return None
    with np.errstate(divide="ignore"):
        made = _log_passes(circuit, np.log(weights.positive), np.log(weights.negative))
    return None if made is None else made[:2]


def _log_passes(
    circuit: EliminationCircuit, weights: np.ndarray, negatives: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(m, e) as in `block_scaled`, and the derivatives of the logarithms for those of entries [row, root of the
    leaves]."""
    leaves = _entries_of(circuit, semirings.log, weights, negatives)
    rows, mantissa = np.empty(leaves.shape), np.empty((len(weights), 1))
    powers = np.zeros((len(weights), 1), np.int64)
    with _Pass(circuit.program) as tables, np.errstate(all="ignore"):
        for number, row in enumerate(leaves):
            total = _exponentials(circuit.program, row, tables.tables)
            value, power = tables.fold()
            derivatives = tables.pull()
            if tables.is_exact:
                mantissa[number], powers[number] = value, total + power
                rows[number] = tables.by_leaves(derivatives * tables.tables) / value
            elif not tables.is_possible(row[circuit.program.cells] > -np.inf):
                mantissa[number], rows[number] = 0.0, 0.0
            else:
                return None
    return mantissa, powers, rows


def _exponentials(program: Blocks, leaves: np.ndarray, tables: np.ndarray) -> int:
    """Write the entries of tables, of logarithms of the leaves, those of each table divided by a power of two that is
    near the largest; returns the logarithm of the product of these powers."""
    tables[:] = leaves[program.cells]
    largest = np.maximum.reduceat(tables, program.starts)
    powers = np.rint(np.where(np.isfinite(largest), largest, 0.0) / np.log(2.0))
    tables -= np.repeat(powers * np.log(2.0), np.diff(program.starts, append=len(tables)))
    np.exp(tables, out=tables)
    return int(powers.sum())


def _booleans(circuit: EliminationCircuit, weights: np.ndarray, negatives: np.ndarray | None) -> np.ndarray:
    can, cannot = weights, ~weights if negatives is None else negatives
    leaves = _entries_of(circuit, semirings.real, can.astype(np.float64), cannot.astype(np.float64)) > 0.0
    values = np.empty((len(can), 1), bool)
    with _Pass(circuit.program) as tables:
        for number, row in enumerate(leaves):
            values[number] = tables.is_possible(row[circuit.program.cells])
    return values


def table_possible(circuit: EliminationCircuit, can: np.ndarray, cannot: np.ndarray) -> np.ndarray:
    """[variable] whether a model of the root has its positive literal; can, cannot [variable] bool: which literals may
    be true."""
    positive, negative = can.astype(np.float64)[None], cannot.astype(np.float64)[None]
    leaves = _entries_of(circuit, semirings.real, positive, negative)
    with _Pass(circuit.program) as tables:
        if not tables.is_possible(leaves[0][circuit.program.cells] > 0.0):
            return np.zeros(len(can), bool)
        seeds = (tables.by_leaves(tables.pull(is_boolean=True)) > 0.0).astype(np.float64)[None]
    derivatives, _ = _pulled(circuit, semirings.real, positive, negative, seeds)
    return (derivatives[0] > 0.0) & can


def block_shares(
    circuit: Circuit, weights: LiteralWeights, shares: LogShares
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """What `fold_each_root` gives for the shares of the weights in the log semiring; None where nodes are to say."""
    if not folds_tables(circuit, weights.num_items):
        return None
    log_weights, scale = log_weights_of(circuit, weights, shares)
    made = _log_vjp(circuit, *log_weights)
    if made is None:
        return None
    log_value, positive, negative = made
    assert negative is not None
    # What cannot be has no share either, and its scale may be no number.
    log_shares = np.subtract(log_value, scale, out=np.full_like(log_value, -np.inf), where=log_value > -np.inf)
    return log_shares, positive[:, None], negative[:, None]


def log_weights_of(
    circuit: EliminationCircuit, weights: LiteralWeights, shares: LogShares
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray | float]:
    """Log weights of both literals, and the logarithm [row, 1] of how many times the root under the shares the root
    under these is.

    The numbers of a network are near one as they are; a product of thousands of shares of a half is not.
    """
    if not circuit.mentions_all:
        return (shares.positive, shares.negative), 0.0
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights.positive), np.log(weights.negative)
    return log_weights, shares.total[:, circuit.mentioned].sum(axis=1, keepdims=True)


_VALUES = {"real": _values, "log": _log_values, "boolean": _booleans}
_DERIVATIVES = {"real": _vjp, "log": _log_vjp}
