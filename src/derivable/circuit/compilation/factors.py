"""Circuits of products of tables: Bayesian networks, Markov random fields, and what else factorises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from derivable.circuit.compilation.blocks import eliminated
from derivable.circuit.compilation.eliminate import ones_of, timed
from derivable.circuit.compilation.orders import best_order
from derivable.circuit.compilation.tables import Space
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.elimination_circuit import described
from derivable.core.and_or import FALSE
from derivable.core.arguments import integer
from derivable.core.arrays import as_reals
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.core.graph import offsets_of
from derivable.core.names import FreshNames
from derivable.core.progress import Deadline, checked_time_limit

Factor = tuple[Sequence[int], Any]


def from_factors(
    factors: Iterable[Factor],
    cardinalities: Sequence[int],
    *,
    names: Sequence[str] | None = None,
    time_limit: float | None = None,
    memory_limit: int | None = None,
) -> Circuit:
    """The circuit of a product of tables, by variable elimination; its weighted count is the sum over all assignments.

    factors        (variables, table): numbers from 0 of discrete variables, and an array of numbers of at least 0 with
                   an axis for each of them, in this order. The tables of a Bayesian network, for example
    cardinalities  [variable] how many values each has
    names          [indicator], kept in `circuit.names`; None: none
    time_limit     seconds; then CompileTimeout is raised
    memory_limit   bytes of the growing circuit; None: what the machine has
    returns        a circuit of one root. Its first variables are indicators: number 1 + (the cardinalities of variables
                   0..i - 1) + k is true where variable i has its value k. The others are the numbers of the tables,
                   equal numbers of one table being one. `circuit.weights` has them, and 1 for every other literal

    So `circuit.weighted_count()` is the sum, `circuit.marginals()` has all posteriors in its first columns, and
    evidence is `circuit.condition(...)` or a weight of 0 for the indicators of the values that were not observed.

    Raises ShapeError for a table that does not fit its variables, DomainError for negative or NaN numbers,
    CompileTimeout, OutOfMemory with the width and the size of the best order.

    >>> import numpy as np
    >>> circuit = from_factors([((0,), [0.9, 0.1]), ((0, 1), [[0.8, 0.2], [0.3, 0.7]])], [2, 2])
    >>> np.round(circuit.marginals()[:4], 3).tolist()
    [0.9, 0.1, 0.75, 0.25]
    """
    deadline = Deadline(checked_time_limit(time_limit), "compilation", "raise time_limit")
    sizes = [integer(number, f"cardinalities[{place}]", 1) for place, number in enumerate(cardinalities)]
    tables = [_checked(number, variables, table, sizes) for number, (variables, table) in enumerate(factors)]
    if memory_limit is not None:
        memory_limit = integer(memory_limit, "memory_limit", 1)
    order = best_order([variables for variables, _ in tables], sizes, deadline)
    space = Space.of(order.order, sizes, deadline=deadline)
    builder = CircuitBuilder()
    starts = offsets_of(sizes)
    weights = [1.0] * int(starts[-1])
    groups = [range(int(first) + 1, int(last) + 1) for first, last in pairwise(starts)]
    numbered = list[tuple[np.ndarray, np.ndarray]]()
    for _, table in tables:
        numbers, where = np.unique(table, return_inverse=True)
        # Zeros are no entries, and ones need no variable.
        variable = numbers[(numbers != 0.0) & (numbers != 1.0)]
        groups.append(range(len(weights) + 1, len(weights) + 1 + len(variable)))
        weights += variable.tolist()
        numbered.append((numbers, where))
    ones = ones_of(builder, groups)
    made = [space.table([variable], nodes) for variable, (nodes, _) in enumerate(ones[: len(sizes)])]
    for (variables, table), (numbers, where), (nodes, none) in zip(tables, numbered, ones[len(sizes) :]):
        node_of = np.where(numbers == 0.0, FALSE, none)
        node_of[(numbers != 0.0) & (numbers != 1.0)] = nodes
        made.append(space.table(variables, node_of[where].reshape(table.shape)))
    pair = np.array(weights, np.float64), np.ones(len(weights))
    with timed(order):
        circuit = eliminated(builder, made, space, order, len(weights), pair, memory_limit=memory_limit)
        deadline.remaining()
    return circuit if names is None else _named(circuit, names, int(starts[-1]))


def _named(circuit: Circuit, names: Sequence[str], num_indicators: int) -> Circuit:
    if len(names) != num_indicators:
        raise ShapeError(f"there are {len(names)} names, and {num_indicators} indicators")
    fresh = FreshNames(names)
    more = (fresh(f"w{number}") for number in range(1, circuit.num_variables - num_indicators + 1))
    return described(circuit, names=(*names, *more))


def _checked(number: int, variables: Sequence[int], table: Any, sizes: Sequence[int]) -> tuple[list[int], np.ndarray]:
    scope = [integer(variable, f"a variable of factor {number}", 0, len(sizes) - 1) for variable in variables]
    if len(set(scope)) < len(scope):
        raise DomainError(f"factor {number} has a variable twice: {scope}")
    array = as_reals(table, f"the table of factor {number}")
    shape = tuple(sizes[variable] for variable in scope)
    if array.shape != shape:
        raise ShapeError(f"the table of factor {number} has shape {array.shape}, its variables {scope} have {shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        place = np.argwhere(~(np.isfinite(array) & (array >= 0)))[0].tolist()
        raise DomainError(f"factor {number} has {array[tuple(place)]} at {place}", hint="numbers of at least 0")
    return scope, array
