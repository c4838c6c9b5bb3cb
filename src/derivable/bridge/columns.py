"""Engines that are column programs, on arrays of any library and device, and the transposition of a program.

A program runs forwards with all its values kept, then its nodes are gone through backwards: what a gather reads is
added to where it was read, parts and wholes change places, and scalar operations have the vjp of their expressions. So
derivatives are those of the algebra (the rules of operators, the smallest index where extrema tie, zero where there is
no adjoint), the same in every library, which the libraries' own rules are not.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from derivable.bridge.protocol import Engine, Functions
from derivable.core.diagnostics import UnsupportedError
from derivable.parallel.program import nodes as n
from derivable.parallel.program.execute import Arrays, Prepared, Run

OPERANDS = "operands"


class ColumnEngine(Engine):
    """An engine by a column program of one `Given`, of `OPERANDS`.

    An operand [*batch, row] is a column whose batch is the items of the run; so is a result.
    """

    @property
    @abstractmethod
    def program(self) -> Prepared: ...

    def apply(self, structure: Any, operands: Sequence[Any]) -> list[Any]:
        return _by_torch(self.elsewhere("torch")[0], structure, operands)

    def pull(
        self,
        structure: Any,
        adjoints: Sequence[Any],
        operands: Sequence[Any],
        results: Sequence[Any],
        kept: Sequence[Any] = (),
    ) -> list[Any]:
        return _by_torch(self.elsewhere("torch")[1], structure, adjoints, operands, results)

    def elsewhere(self, library: str) -> Functions:
        functions = partial(self._apply, library), partial(self._pull, library)
        if library != "torch":
            return functions
        import torch

        # What autograd does not record goes through buffers.
        return torch.no_grad()(functions[0]), torch.no_grad()(functions[1])

    def _apply(self, library: str, structure: Any, operands: Sequence[Any]) -> list[Any]:
        arrays, batch = arrays_of(library, operands[0].device if library == "torch" else None), operands[0].shape[:-1]
        run = self.program.in_batches({OPERANDS: _columns(operands)}, arrays, math.prod(batch))
        return [x.T.reshape(*batch, len(x)) for x in run.many(self.program.results)]

    def _pull(self, library: str, structure: Any, adjoints: Any, operands: Any, results: Any) -> list[Any]:
        arrays, columns = arrays_of(library, operands[0].device if library == "torch" else None), _columns(operands)
        seeds: list[Any] = [None] * len(self.program.results)
        for k, seed in zip(self.float_results, adjoints):
            seeds[k] = None if seed is None else _columns([seed])[0]
        found = pull(self.program, columns, seeds, arrays)
        return [
            arrays.zeros(x.shape, x) if found[k] is None else found[k].T.reshape(x.shape)
            for k, x in ((k, operands[k]) for k in self.float_operands)
        ]

    def __getstate__(self) -> dict[str, Any]:
        # Nodes are nested as deeply as a program is long.
        return {name: value for name, value in vars(self).items() if name != "program"}


def _columns(operands: Sequence[Any]) -> list[Any]:
    return [x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).T for x in operands]


def _by_torch(function: Any, structure: Any, *groups: Sequence[Any]) -> list[np.ndarray]:
    import torch

    # Arrays of XLA are for reading only, of which torch warns.
    tensors = [
        [None if x is None else torch.from_numpy(x if x.flags.writeable else x.copy()) for x in group]
        for group in groups
    ]
    return [x.numpy() for x in function(structure, *tensors)]


@lru_cache(64)
def arrays_of(library: str, device: Any) -> Arrays:
    """The operations of "torch" on a device, or of "JAX"."""
    if library == "torch":
        from derivable.bridge.torch_columns import Torch

        return Torch(device)
    from derivable.bridge.jnp_columns import Jnp

    return Jnp()


def pull(program: Prepared, columns: Sequence[Any], seeds: Sequence[Any], arrays: Arrays) -> list[Any]:
    """The adjoints of the columns [row, item] of `OPERANDS`, from those of the results; None for zeros.

    Raises UnsupportedError for nodes that have no transposition.
    """
    run = program.in_batches({OPERANDS: columns}, arrays, columns[0].shape[1], keep=True)
    sweep = _Sweep(run)
    for column, seed in zip(program.results, seeds):
        sweep.add(column, seed)
    found: list[Any] = [None] * len(columns)
    for step in reversed(program.steps):
        adjoints = sweep.adjoints.pop(step.node, None)
        if adjoints is None:
            continue
        if isinstance(step.node, n.Given):
            found = adjoints
        else:
            sweep.node(step.node, adjoints)
    return found


class _Sweep:
    """Adjoints [node][result]; those in `own` are nobody else's, and change in place."""

    def __init__(self, run: Run):
        self.run, self.values, self.arrays = run, run.values, run.arrays
        self.adjoints: dict[n.Node, list[Any]] = {}
        self.own: set[n.Column] = set()

    def add(self, column: n.Column, adjoint: Any, is_own: bool = False) -> None:
        if adjoint is None:
            return
        known = self.adjoints.setdefault(column.node, [None] * len(column.node.types))
        if known[column.number] is not None:
            known[column.number] = known[column.number] + adjoint
        else:
            known[column.number] = adjoint
            if not is_own:
                return
        self.own.add(column)

    def add_at(self, column: n.Column, rows: Any, adjoint: Any) -> None:
        if column not in self.own:
            value = self.values[column.node][column.number]
            self.add(column, self.arrays.zeros(value.shape, value), is_own=True)
        known = self.adjoints[column.node]
        known[column.number] = self.arrays.add_at(known[column.number], rows, adjoint)

    def node(self, node: n.Node, adjoints: list[Any]) -> None:
        match node:
            case n.Gather(otherwise=None):
                self.add_at(node.of, self.values[node.rows.node][node.rows.number], adjoints[0])
            case n.Split():
                values = self.values[node]
                parts = [self.arrays.zeros(v.shape, v) if x is None else x for x, v in zip(adjoints, values)]
                self.add(node.of, self.arrays.concatenate(parts), is_own=True)
            case n.Concatenate():
                is_own, sizes = n.Column(node) in self.own, [self.run.size(part.size) for part in node.of]
                for part, adjoint in zip(node.of, self.arrays.split(adjoints[0], sizes)):
                    self.add(part, adjoint, is_own)
            case n.Apply(function=n.Function() as function):
                self.apply(node, function, adjoints)
            case n.Constant():
                pass
            case _:
                raise UnsupportedError(f"a column program has no derivative of {type(node).__name__.lower()}")

    def apply(self, node: n.Apply, function: n.Function, adjoints: list[Any]) -> None:
        vjp, live = function.vjp
        values = self.values[node]
        seeds = [self.arrays.zeros(v.shape, v) if x is None else x for x, v in zip(adjoints, values)]
        operands = [self.values[x.node][x.number] for x in node.inputs]
        if live:
            count, items = values[0].shape
            for k, adjoint in zip(live, self.arrays.apply(vjp, [*operands, *seeds], count, items)):
                self.add(node.inputs[k], adjoint)
