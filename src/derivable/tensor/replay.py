"""Calls with inputs like those of the call before, without looking at all of them again.

What a call decides, which kernel runs and where its arguments come from, follows from what its inputs are: their types,
shapes and dtypes, and which arrays say where their entries are. A replay is a Python function made for one such
outcome. It compares what the decision rests on, and computes; it returns None where anything differs.

Arrays that say where entries are must be the very same objects, whose indices were checked when they first came. What
they hold may have changed in between: kernels read them anew, and where a kept pattern was found from them they are
compared with it, but for those that nobody may write to.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.tensor.emit import Built
from derivable.tensor.formats.held import Held
from derivable.tensor.results import INSIDE, filled, is_cleared
from derivable.tensor.types import REAL, Type
from derivable.tensor.values import Coordinates

# NumPy makes and clears arrays of so many bytes sooner than kept memory is found for them.
_SMALL = 1 << 20
# (inputs by name, array for the result or None) -> result, or None
Replay = Callable[[Mapping[str, Any], Any], Any]


class Recorder:
    """Writes the text of a replay. What is no literal is a constant of it, by name."""

    def __init__(self, given: Mapping[str, Any]):
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.texts: dict[tuple[str, Any], str] = {}
        self._need(f"len(given) == {len(given)}")

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _need(self, condition: str) -> None:
        self.lines.append(f"if not ({condition}): return None")

    def tensor(self, name: str, value: Any, held: Held, kept: Mapping[str, Any]) -> bool:
        """Take the arrays of an input; False if it is converted at each call.

        kept  by name, the arrays that a kept pattern was found from
        """
        x = f"x{len(self.lines)}"
        self.lines.append(f"{x} = given.get({name!r})")
        self._need(f"type({x}) is {self._constant(type(value))} and {x}.shape == {held.shape}")
        structure = {part for part in held.arrays if held.format.arrays.get(part) != "real"}
        if isinstance(value, Held):
            self._need(f"{x}.format is {self._constant(held.format)}")
            self.lines.append(f"{x} = {x}.arrays")
        else:
            own = held.format.own(value)
            if own is None or any(own[part] is not held.arrays[part] for part in structure):
                return False
            self.lines.append(f"{x} = {self._constant(held.format.own)}({x})")
            self._need(f"{x} is not None")
        for part, found in held.arrays.items():
            local = self.texts[name, part] = f"{x}_{part}"
            self.lines.append(f"{local} = {x}[{part!r}]")
            if part not in held.format.arrays:
                self._need(f"{local} == {found!r}")
            elif part in structure:
                self._need(f"{local} is {self._constant(weakref.ref(found))}()")
                if part in kept and found.flags.writeable:
                    self._need(f"array_equal({local}, {self._constant(kept[part])})")
            else:
                self._need(self._is_like(local, found.shape, found.dtype))
        return True

    def _is_like(self, local: str, shape: tuple[int, ...], dtype: Any) -> str:
        is_right = f"{local}.dtype is {self._constant(np.dtype(dtype))} and {local}.shape == {shape}"
        return f"type({local}) is ndarray and {is_right} and {local}.flags.c_contiguous"

    def number(self, name: str, value: Any, of: Type) -> bool:
        """Take a real number as it comes, and integers and truth values if they are what they were."""
        if type(value) not in ((float,) if of == REAL else (int, bool)):
            return False
        local = self.texts[name, 0] = f"n{len(self.lines)}"
        self.lines.append(f"{local} = given.get({name!r})")
        self._need(f"type({local}) is {type(value).__name__}")
        if of != REAL:
            self._need(f"{local} == {value!r}")
        return True

    def unused(self, name: str, value: Any) -> bool:
        """Take an input that says nothing but a shape; False if that is not to be seen."""
        if not hasattr(value, "shape") and type(value) not in (float, int, bool):
            return False
        x = f"u{len(self.lines)}"
        self.lines.append(f"{x} = given.get({name!r})")
        self._need(f"type({x}) is {self._constant(type(value))}")
        if hasattr(value, "shape"):
            self._need(f"{x}.shape == {self._constant(value.shape)}")
        return True

    def result(
        self, built: Built, sources: Callable[[str, Any, Any], Any], shape: tuple[int, ...], zero: Any, dtype: Any
    ) -> None:
        """A dense result, or a number."""
        if not shape:
            self._need("out is None")
            self.lines.append(f"return {self._call(built, sources)}")
            return
        self._output(shape, zero, dtype)
        self.lines.append("values = out.reshape(-1)" if len(shape) > 1 else "values = out")
        self._need(f"{self._call(built, sources)} == {INSIDE}")
        self.lines.append("return out")

    def entries(
        self,
        built: Built,
        sources: Callable[[str, Any, Any], Any],
        pattern: Any,
        zero: Any,
        dtype: Any,
        formed: Callable[[Coordinates, Any], Any] | None,
    ) -> None:
        """A sparse result with a kept pattern."""
        self._output((pattern.indices.shape[1],), None if pattern.positions is None else zero, dtype)
        self.lines.append("values = out")
        self._need(f"{self._call(built, sources)}[0] == {INSIDE}")
        indices = self._constant(pattern.indices)
        # What a frozen dataclass does to set its fields takes longer than all else.
        self.lines.append("found = new(Coordinates)")
        self.lines.append(f"found.__dict__.update(shape={pattern.shape}, indices={indices}, values=out)")
        self.lines.append(
            f"return {'found' if formed is None else f'{self._constant(formed)}(found, {self._constant(zero)})'}"
        )

    def product(
        self, multiplied: Callable[..., Any], factors: Sequence[tuple[Callable[..., Any], Sequence[str]]]
    ) -> None:
        """The outer product of results of other kernels, by the names of their inputs."""
        parts = []
        for factor, names in factors:
            given = ", ".join(f"{name!r}: given[{name!r}]" for name in names)
            parts.append(f"{self._constant(factor)}(**{{{given}}})")
        self.lines.append(f"return {self._constant(multiplied)}({', '.join(parts)}, out)")

    def _output(self, shape: tuple[int, ...], zero: Any, dtype: Any) -> None:
        of = np.dtype(dtype)
        made = "filled(None, {0}, {1}, {2})"
        if math.prod(shape) * of.itemsize < _SMALL:
            made = "empty({0}, {2})" if zero is None else "cleared({0}, {2})" if is_cleared(zero) else made
        made = made.format(shape, self._constant(zero), self._constant(of))
        self.lines.append(f"if out is None: out = {made}")
        self.lines.append(f"elif not ({self._is_like('out', shape, dtype)} and out.flags.writeable): return None")
        if zero is not None:
            self.lines.append(f"else: out.fill({self._constant(zero)})")

    def _call(self, built: Built, sources: Callable[[str, Any, Any], Any]) -> str:
        arguments = []
        for source, name, part in built.arguments:
            known = self.texts.get((name, part))
            if source == "out" and name == "values":
                arguments.append("values")
            elif source in ("array", "scalar") and known is not None:
                arguments.append(known)
            elif source == "space":
                found = sources(source, name, part)
                arguments.append(f"cleared({found.shape}, {self._constant(found.dtype)})")
            else:
                arguments.append(self._constant(sources(source, name, part)))
        run = built.runner(sources)
        return f"{self._constant(run.settled if run is built.run else run)}({', '.join(arguments)})"

    def replay(self) -> Replay:
        names = ", ".join(self.constants)
        body = "\n".join(f"        {line}" for line in self.lines)
        return _maker(f"def make({names}):\n    def replay(given, out):\n{body}\n    return replay\n")(**self.constants)


def is_plain(semiring: Semiring) -> bool:
    """Whether every float is an element of the semiring."""
    return semiring.carrier == "float" and all(math.isinf(bound) for bound in semiring.domains[0])


@lru_cache(256)
def _maker(text: str) -> Callable[..., Replay]:
    made: dict[str, Any] = {
        "Coordinates": Coordinates,
        "array_equal": np.array_equal,
        "cleared": np.zeros,
        "empty": np.empty,
        "filled": filled,
        "ndarray": np.ndarray,
        "new": object.__new__,
    }
    exec(text, made)
    return made["make"]
