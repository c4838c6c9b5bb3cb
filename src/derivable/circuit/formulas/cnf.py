"""Formulas in conjunctive normal form, from clauses and with weights of literals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.core.arguments import integer, is_integer
from derivable.core.arrays import as_bools
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.core.splitmix64 import finalized_words

# What is beyond is no number of a variable, and need not fit a word.
_FAR = 2**62


@dataclass(frozen=True, eq=False)
class Cnf:
    """A conjunction of clauses over the variables 1..num_variables.

    offsets   [clause + 1] int64: clause c is literals[offsets[c]:offsets[c + 1]]
    literals  [occurrence] int32 signed variables, never 0; an empty clause is false
    weights   (positive, negative), each [variable] float64, or None if the file gave none
    task      "mc", "wmc", "pmc", "pwmc", or None if the file does not say
    source    the file it came from, for messages
    shown     the variables that a projected count is over, None for all
    """

    num_variables: int
    offsets: np.ndarray
    literals: np.ndarray
    weights: tuple[np.ndarray, np.ndarray] | None = None
    task: str | None = None
    source: str | None = None
    shown: tuple[int, ...] | None = None

    @property
    def num_clauses(self) -> int:
        return len(self.offsets) - 1

    def clauses(self) -> list[list[int]]:
        """The clauses as lists of Python ints, in order."""
        literals, offsets = self.literals.tolist(), self.offsets.tolist()
        return [literals[start:stop] for start, stop in itertools.pairwise(offsets)]

    def compacted(self) -> tuple[np.ndarray, Cnf]:
        """(the variables that clauses mention, ascending, the clauses over these alone, called by their numbers)."""
        variables, numbers = np.unique(np.abs(self.literals), return_inverse=True)
        literals = np.sign(self.literals) * (numbers.reshape(-1) + 1).astype(np.int32)
        return variables, Cnf(len(variables), self.offsets, literals)

    def satisfied_by(self, assignment: Sequence[bool] | np.ndarray) -> np.ndarray:
        """Whether each assignment is a model: [*batch, variable] bool to [*batch] bool. What a CNF means."""
        values = as_bools(assignment, "the assignment")
        result = np.ones(values.shape[:-1], dtype=bool)
        for start, stop in zip(self.offsets[:-1], self.offsets[1:]):
            clause = self.literals[start:stop]
            result &= (values[..., np.abs(clause) - 1] == (clause > 0)).any(axis=-1)
        return result

    def __repr__(self) -> str:
        weighted = ", weighted" if self.weights is not None else ""
        return f"Cnf({self.num_variables} variables, {self.num_clauses} clauses{weighted})"


def _flat(clauses: Any, look: Callable[[], Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """The number of literals of each clause, and all literals one after the other, of lists of Python's integers and of
    arrays of integers; None for anything else."""
    if isinstance(clauses, np.ndarray) and clauses.ndim == 2 and clauses.dtype.kind in "iu":
        if clauses.itemsize == 8 and clauses.size and not -_FAR <= clauses.min() <= clauses.max() <= _FAR:
            return None
        is_literal = clauses != 0
        return is_literal.sum(axis=1), clauses[is_literal].astype(np.int64)
    if not isinstance(clauses, (list, tuple)):
        return None
    parts: list[np.ndarray] = []
    for first in range(0, len(clauses), 4096):
        look()
        part = clauses[first : first + 4096]
        if not {*map(type, part)} <= {list, tuple}:
            return None
        literals = [*itertools.chain.from_iterable(part)]
        if not {*map(type, literals)} <= {int}:
            return None
        try:
            parts.append(np.array(literals, np.int64))
        except OverflowError:
            return None
    lengths = np.fromiter(map(len, clauses), np.int64, len(clauses))
    return lengths, np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _checked_rows(clauses: Iterable[Sequence[int]] | np.ndarray, look: Callable[[], Any]) -> list[list[int]]:
    """The clauses, every literal a Python integer that fits a word. Raises DomainError for what is none."""
    rows: list[list[int]] = []
    is_array = isinstance(clauses, np.ndarray)
    for number, clause in enumerate(clauses):
        if number % 4096 == 0:
            look()
        try:
            row = list(clause)
            if not {*map(type, row)} <= {int} or max(row, default=0) > _FAR or min(row, default=0) < -_FAR:
                row = [_as_int(literal) for literal in row]
        except TypeError:
            raise DomainError(
                f"clause {number} is {clause!r}, not a sequence of integers",
                hint="write clauses as [[1, -2], [2, 3]]: signed variable numbers, from 1",
            ) from None
        if is_array:
            row = [literal for literal in row if literal]
        rows.append(row)
    return rows


def cnf_from_clauses(
    clauses: Iterable[Sequence[int]] | np.ndarray,
    num_variables: int | None = None,
    weights: tuple[np.ndarray, np.ndarray] | None = None,
    look: Callable[[], Any] = lambda: None,
) -> Cnf:
    """A CNF from lists of signed variables, or from an integer array [clause, literal] padded with zeros.

    num_variables  default: the largest variable mentioned
    look           called now and then, to end the reading of many clauses
    Raises DomainError for a literal that is zero, no integer, or beyond `num_variables`.
    """
    if not isinstance(clauses, Iterable):
        raise DomainError(
            f"{clauses!r} is neither a path, nor a formula, nor clauses",
            hint="write clauses as [[1, -2], [2, 3]]: signed variable numbers, from 1",
        )
    if num_variables is not None:
        num_variables = integer(num_variables, "num_variables", 0, 2**31 - 1)
    flat = _flat(clauses, look)
    if flat is None:
        rows = _checked_rows(clauses, look)
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        literals = np.array([*itertools.chain.from_iterable(rows)], dtype=np.int64)
    else:
        lengths, literals = flat
    largest = largest_variable(literals)
    if num_variables is None:
        num_variables = largest
    end = min(num_variables, 2**31 - 1)
    bad = np.flatnonzero((literals == 0) | (literals > end) | (literals < -end))
    if len(bad):
        clause = int(np.searchsorted(np.cumsum(lengths), bad[0], side="right"))
        value = int(literals[bad[0]])
        reason = "0 is not a variable" if value == 0 else f"there are {num_variables} variables"
        raise DomainError(
            f"clause {clause} has the literal {value}: {reason}",
            hint="variables are numbered from 1; clauses need no closing 0" if value == 0 else "raise num_variables",
        )
    return Cnf(
        num_variables,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        literals.astype(np.int32),
        checked_weights(weights, num_variables),
    )


def without_repeats(cnf: Cnf, look: Callable[[], Any] = lambda: None) -> Cnf:
    """Repeated literals and clauses dropped, and clauses that hold both literals of a variable."""
    lengths, variables = np.diff(cnf.offsets), np.abs(cnf.literals).astype(np.int64)
    keys = np.repeat(np.arange(cnf.num_clauses), lengths) * (cnf.num_variables + 1) + variables
    order = np.argsort(keys, kind="stable")
    keys, literals = keys[order], cnf.literals[order]
    look()
    if (keys[1:] != keys[:-1]).all() and (lengths > 0).all():
        # No variable is repeated in a clause. Clauses of which no two have equal hashes differ.
        hashes = np.sort(np.add.reduceat(finalized_words(literals.astype(np.uint64)), cnf.offsets[:-1]))
        if (hashes[1:] != hashes[:-1]).all():
            return Cnf(cnf.num_variables, cnf.offsets, literals)
    seen: dict[tuple[int, ...], None] = {}
    for number, clause in enumerate(cnf.clauses()):
        if number % 4096 == 0:
            look()
        distinct = set(clause)
        if not any(-literal in distinct for literal in distinct):
            seen[tuple(sorted(distinct, key=abs))] = None
    return cnf_from_clauses(seen, cnf.num_variables, look=look)


def largest_variable(literals: np.ndarray) -> int:
    """The largest variable among literals, 0 if there are none; the least number of 64 bits has no absolute value."""
    return max(int(literals.max(initial=0)), -int(literals.min(initial=0)))


def _as_int(literal: Any) -> int:
    if not is_integer(literal) or abs(int(literal)) > _FAR:
        raise TypeError(literal)
    return int(literal)


def checked_weights(weights, num_variables: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The pair (positive, negative), each [variable] float64; ShapeError or DomainError if it cannot be."""
    if weights is None:
        return None
    if not isinstance(weights, Sequence) or len(weights) != 2:
        actual = f"a sequence of {len(weights)}" if isinstance(weights, Sequence) else f"a {type(weights).__name__}"
        raise ShapeError(
            f"weights is {actual}, expected the pair (positive, negative)",
            hint="pass weights=(positive, negative), each with one number per variable",
        )
    pair = []
    for name, values in zip(("positive", "negative"), weights):
        array = np.array(values, dtype=np.float64)
        if array.shape != (num_variables,):
            raise ShapeError(f"the {name} weights have shape {array.shape}, expected [variable] = ({num_variables},)")
        if np.isnan(array).any():
            variable = int(np.flatnonzero(np.isnan(array))[0]) + 1
            raise DomainError(f"the {name} weight of variable {variable} is NaN")
        pair.append(array)
    return pair[0], pair[1]
