"""Programs as engines of the bridge: functions of the values of their inputs, whose entries stay where they are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from derivable.bridge.protocol import Adjoints, Arrays, Engine, Shape
from derivable.core.diagnostics import ShapeError, UnsupportedError
from derivable.core.names import FreshNames
from derivable.tensor.call.compilation import Kernel, compile
from derivable.tensor.derivative.derivative import jvp, vjp
from derivable.tensor.formats.held import Held, entries_of, hold
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import substitute
from derivable.tensor.language.program import Program
from derivable.tensor.values.inputs import taken_names
from derivable.tensor.values.values import Coordinates, linear

# Tensors of which a program keeps where their entries are.
_KEPT = 8


@dataclass
class Derived:
    """What programs over the same inputs need again and again: kernels, and derivatives, which take longer to find than
    most kernels run."""

    kernels: dict[tuple, Kernel] = field(default_factory=dict)
    programs: dict[tuple, Program] = field(default_factory=dict)
    # By variables: (engine without constants, whether its result is dense around the entries of its pattern)
    engines: dict[tuple, tuple[ProgramEngine, bool]] = field(default_factory=dict)
    # (shape, indices, ones that are stored there)
    _stored: list[tuple[Shape, np.ndarray, Held]] = field(default_factory=list)
    # (what says where entries are, the entries, [place] of the values which entry they are of; 0 is none)
    _places: list[tuple[list[Any], Coordinates, np.ndarray]] = field(default_factory=list)

    @cached_property
    def fetched(self) -> Any:
        """The indices of torch tensors, as of `IndexCache`."""
        from derivable.tensor.call.sparsity import IndexCache

        return IndexCache()

    def keep(self, key: tuple, engine: ProgramEngine, is_filled: bool) -> None:
        """Keep an engine for calls with the same variables, which it holds."""
        self.engines[key] = engine, is_filled
        if len(self.engines) > _KEPT:
            self.engines.pop(next(iter(self.engines)), None)

    def known(self, shape: Shape, indices: np.ndarray) -> Held | None:
        """What `stored` gave for such entries, if that is kept."""
        for size, kept, held in self._stored:
            if size == shape and (kept is indices or np.array_equal(kept, indices)):
                return held
        return None

    def stored(self, entries: Coordinates) -> Held:
        """A tensor of ones with these entries, in a format whose values are in their order: the same one for entries
        that are where those of a call before were, since kernels do not look at the same arrays again."""
        held = self.known(entries.shape, entries.indices)
        if held is None:
            indices = entries.indices.copy() if entries.indices.flags.writeable else entries.indices
            ones = Coordinates(entries.shape, indices, np.ones(indices.shape[1]))
            held = hold(ones, "csr" if entries.order == 2 else "csf", entries.order)
            self._stored.append((entries.shape, indices, held))
            del self._stored[:-_KEPT]
        return held

    def places(self, of: Held) -> tuple[Coordinates, np.ndarray]:
        """(the entries of a stored tensor, [place] of its values which of them it is for, counted from 1; 0 is none)"""
        structure = of.structure
        for kept, entries, places in self._places:
            if len(kept) == len(structure) and all(a is b for a, b in zip(kept, structure)):
                return entries, places
        # A tensor that holds the numbers of its entries is stored where these are.
        entries = entries_of(of)
        numbers = Coordinates(entries.shape, entries.indices, np.arange(1.0, len(entries.values) + 1))
        places = hold(numbers, of.format, len(of.shape)).arrays["val"].astype(np.int64)
        self._places.append((structure, entries, places))
        del self._places[:-_KEPT]
        return entries, places

    def kernel(self, program: Program, is_dense: bool, shape: Shape) -> Kernel:
        key = program, is_dense, shape
        if key not in self.kernels:
            output = "numpy" if is_dense else "coordinates"
            self.kernels[key] = compile(program, output=output, shape=shape or None)
        return self.kernels[key]

    def along(self, program: Program, name: str, of: Held | Shape) -> Program:
        """The jvp by an input: of a stored tensor, by its own entries."""
        return self._derivative(jvp, program, name, of)

    def back(self, program: Program, name: str, of: Held | Shape) -> Program:
        """The vjp, likewise."""
        return self._derivative(vjp, program, name, of)

    def _derivative(self, kind: Any, program: Program, name: str, of: Held | Shape) -> Program:
        pattern = "own" if isinstance(of, Held) else "full"
        key = kind, program, name, pattern
        if key not in self.programs:
            self.programs[key] = kind(program, name, pattern)
        return self.programs[key]


class ProgramEngine(Engine):
    """Programs over the same inputs: from the values of some inputs, the variables, to the values of the results.

    programs   one for each result
    variables  {name: where the entries are}: a tensor in a storage format, of which the values are an operand
               [entry], or the shape of a dense operand; () is a number
    constants  {name: value} of the other inputs
    patterns   of each result where its entries are, and then its values are a result [entry]; None if it is dense
    derived    what is kept for other engines of the same program
    """

    batch_axis = None

    def __init__(
        self,
        programs: Sequence[Program],
        variables: Mapping[str, Held | Shape],
        constants: Mapping[str, Any],
        shapes: Sequence[Shape],
        patterns: Sequence[Coordinates | None],
        derived: Derived | None = None,
    ):
        self.programs, self.variables, self.constants = tuple(programs), dict(variables), dict(constants)
        self.shapes, self.patterns = tuple(shapes), tuple(patterns)
        self.leaves = len(self.variables)
        self.float_leaves = tuple(range(self.leaves))
        self.num_results = len(self.programs)
        self.float_results = tuple(range(self.num_results))
        self.derived = derived or Derived()

    def __str__(self) -> str:
        return f"the values of {', '.join(f'`{program}`' for program in self.programs)}"

    @cached_property
    def key(self) -> str:
        digest = hashlib.sha256(str(self).encode())

        def add(*parts: Any) -> None:
            for part in parts:
                is_array = isinstance(part, np.ndarray) and part.dtype != object
                digest.update(repr((part.dtype, part.shape) if is_array else part).encode())
                digest.update(part.tobytes() if is_array else b"")

        for program in self.programs:
            add(program.semiring, *((s.name, str(s.program), s.semiring.name) for s in program.stages))
        for name, of in (*self.variables.items(), *self.constants.items()):
            add(name, *((of.format.definition, of.shape, *of.arrays.values()) if isinstance(of, Held) else (of,)))
        add(*self.shapes, *(None if pattern is None else pattern.indices for pattern in self.patterns))
        return digest.hexdigest()

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        return [
            shape if pattern is None else (len(pattern.values),) for shape, pattern in zip(self.shapes, self.patterns)
        ]

    def result_dtypes(self, dtypes: Sequence[Any]) -> Sequence[Any]:
        return [dtypes[0]] * self.num_results

    def apply(self, structure: np.ndarray | None, operands: Arrays) -> list[np.ndarray]:
        for (name, of), operand in zip(self.variables.items(), operands):
            shape = of.arrays["val"].shape if isinstance(of, Held) else of
            if operand.shape != shape:
                raise ShapeError(
                    f"`{name}` has shape {list(operand.shape)}, and the graph was made for {list(shape)}",
                    hint="a graph of a tensor program is for one shape: trace or export it for this one, too",
                )
        given = self._inputs(operands)
        dtype = operands[0].dtype
        return [
            self._values(self._run(program, given, pattern is None, shape), pattern, dtype)
            for program, pattern, shape in zip(self.programs, self.patterns, self.shapes)
        ]

    def _run(self, program: Program, given: Mapping[str, Any], is_dense: bool, shape: Shape) -> Any:
        kernel = self.derived.kernel(program, is_dense, shape)
        taken = taken_names(program.inputs)
        return kernel(**{name: value for name, value in given.items() if name in taken})

    @staticmethod
    def _values(found: Any, pattern: Coordinates | None, dtype: Any) -> np.ndarray:
        if pattern is None:
            return np.asarray(found, dtype)
        return spread_over(found, pattern).astype(dtype, copy=False)

    def _inputs(self, operands: Arrays) -> dict[str, Any]:
        given = dict(self.constants)
        for (name, of), operand in zip(self.variables.items(), operands):
            if isinstance(of, Held):
                given[name] = Held(of.format, of.shape, {**of.arrays, "val": operand})
            else:
                given[name] = np.asarray(operand) if of else operand.item()
        return given

    def pull(self, structure: Any, adjoints: Adjoints, operands: Arrays, results: Arrays, kept: Arrays = ()) -> list:
        given = self._inputs(operands)
        found = [np.zeros(operand.shape, operand.dtype) for operand in operands]
        for adjoint, program, pattern in zip(adjoints, self.programs, self.patterns):
            if adjoint is None:
                continue
            if program.type.is_scalar:
                seed = adjoint.item()
            else:
                seed = adjoint if pattern is None else Coordinates(pattern.shape, pattern.indices, np.asarray(adjoint))
            for place, (name, of) in enumerate(self.variables.items()):
                if name not in program.inputs:
                    continue
                pulled = self.derived.back(program, name, of)
                values = {**given, list(pulled.inputs)[-1]: seed}
                if isinstance(of, Held):
                    part = self._in_storage(self._run(pulled, values, False, of.shape), of)
                else:
                    part = self._run(pulled, values, True, of)
                found[place] += np.asarray(part, operands[place].dtype).reshape(operands[place].shape)
        return found

    def _in_storage(self, found: Coordinates, of: Held) -> np.ndarray:
        """[place] of the values of a stored tensor, those of entries of its own pattern."""
        entries, places = self.derived.places(of)
        return np.append(0.0, spread_over(found, entries))[places]

    @cached_property
    def dual(self) -> Engine:  # type: ignore[override]
        tangents: list[Program] = []
        fresh = FreshNames([*self.variables, *self.constants])
        dots = {name: fresh(f"{name}_dot") for name in self.variables}
        for program in self.programs:
            node: t.Node = t.Zero()
            inputs = dict(program.inputs)
            for name, of in self.variables.items():
                if name in program.inputs:
                    along = self.derived.along(program, name, of)
                    inputs |= along.inputs
                    last = list(along.inputs)[-1]
                    part = substitute(along.node, {last: t.Var(dots[name])})
                    inputs[dots[name]] = inputs.pop(last)
                    node = part if isinstance(node, t.Zero) else t.Add(node, part)
            tangents.append(Program(node, inputs, stages=program.stages, semiring=program.semiring, is_guarded=True))
        variables = {**self.variables, **{dots[name]: of for name, of in self.variables.items()}}
        programs, patterns = (*self.programs, *tangents), self.patterns * 2
        return ProgramEngine(programs, variables, self.constants, self.shapes * 2, patterns, self.derived)


def spread_over(found: Coordinates, pattern: Coordinates) -> np.ndarray:
    """[entry of the pattern] the values of entries that are all in it, zero elsewhere.

    Raises UnsupportedError for an entry elsewhere, as conditions on values give them.
    """
    if found.indices is pattern.indices or np.array_equal(found.indices, pattern.indices):
        return found.values
    values = np.zeros(len(pattern.values), found.values.dtype)
    held, given = linear(pattern.indices, pattern.shape), linear(found.indices, found.shape)
    places = np.searchsorted(held, given)
    outside = places == len(held)
    outside[~outside] = held[places[~outside]] != given[~outside]
    if outside.any():
        where = tuple(found.indices[:, int(np.argmax(outside))].tolist())
        raise UnsupportedError(
            f"the result has an entry at {where}, where it had none for the first values",
            hint='a result whose entries depend on values is dense: `output="numpy"`',
        )
    values[places] = found.values
    return values
