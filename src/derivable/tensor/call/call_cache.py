"""Calls with inputs like those of the call before, without looking at all of them again.

What a call decides, which kernel runs and where its arguments come from, follows from what its inputs are: their types,
shapes and dtypes, and which arrays say where their entries are. A cached call is a Python function made for one such
outcome, whose parameters are the inputs. It compares what the decision rests on, and computes; where anything differs
the call is one that knows nothing.

Arrays that say where entries are must be the very same objects, whose indices were checked when they first came. What
they hold may have changed in between: kernels read them anew, and where a kept pattern was found from them they are
compared with it, but for those that nobody may write to. Other arrays are looked at if they are not the same objects:
one that is referred to keeps its memory, since NumPy does not let it be resized.

A plan that is looked up by the types, shapes and dtypes of two inputs does not take the place of this. Where one
of 1,000 products takes 1.4 us, a method that has its inputs in a dictionary and calls it takes 2.0, and one
that makes a key of them and looks it up 3.8. Neither do closures that each look at one input: a product of a CSR
matrix and a vector takes 1.45 us with them and 0.89 with the text. `einsum`, which has no names to call by, keeps plans
in front of it.
"""

from __future__ import annotations

import inspect
import keyword
import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.tensor.call.factored import NotExact, Product
from derivable.tensor.formats.held import Held
from derivable.tensor.language.types import REAL, Type
from derivable.tensor.lower.emit import Built
from derivable.tensor.lower.results import INSIDE, filled
from derivable.tensor.lower.workspace import is_cleared
from derivable.tensor.values.values import Coordinates, Unfrozen

# NumPy makes and clears arrays of so many bytes sooner than kept memory is found for them.
_SMALL = 1 << 20
# (*, out=None, **inputs) -> result
CachedCall = Callable[..., Any]


class _Signature:
    """What `inspect` says of calls of an instance, whose `__call__` it takes for data; a class keeps its own."""

    def __get__(self, of: CachedCalls | None, kind: type) -> inspect.Signature:
        if of is None:
            raise AttributeError("__signature__")
        return inspect.signature(_anew(weakref.ref(of)))


class CachedCalls(ABC):
    """What is called as the function that its last call left.

    So inputs are parameters of a cached call: a method would put them into a dictionary first, which takes longer than
    to look at them.
    """

    __slots__ = ("__call__",)

    __call__: CachedCall
    __signature__ = _Signature()

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Look at all inputs of the next call."""
        self.__call__ = _anew(weakref.ref(self))

    @abstractmethod
    def call_anew(self, values: dict[str, Any], out: Any) -> Any:
        """A call that rests on none before; it may leave a cached one.

        values  inputs by name
        out     an array for the result, None for a new one
        """

    # What is copied is not called as the first one.

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.forget()


def _anew(of: weakref.ref[CachedCalls]) -> CachedCall:
    def call(*, out: Any = None, **values: Any) -> Any:
        return _found(of).call_anew(values, out)

    return call


def _found(of: weakref.ref[CachedCalls]) -> CachedCalls:
    # Whoever calls a kernel holds it, but for who took its method and let it go.
    found = of()
    if found is None:
        raise ReferenceError("the kernel that is called has gone")
    return found


class _Absent:
    """What an input is that was not given."""


_ABSENT = _Absent()


class CallRecorder:
    """Writes the text of a cached call. What is no literal is a constant of it, by name; names with an underscore are
    its own, others are inputs."""

    def __init__(self, given: Mapping[str, Any], built: Built):
        self.lines: list[str] = ["if _others: break"]
        self.constants: dict[str, Any] = {}
        self.texts: dict[tuple[str, Any], str] = {}
        self.parameters, self.built = tuple(given), built
        self.needed = {(name, part) for _, name, part in built.arguments}

    def _constant(self, value: Any) -> str:
        name = f"_c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _need(self, condition: str) -> None:
        self.lines.append(_needed(condition))

    def _same(self, value: Any) -> str:
        """The text of a value that is there as long as somebody else needs it. What it is compared with is not None."""
        return f"{self._constant(weakref.ref(value))}()"

    def tensor(self, name: str, value: Any, held: Held, kept: Mapping[str, Any]) -> bool:
        """Take the arrays of an input; False if it is converted at each call.

        kept  by name, the arrays that a kept pattern was found from
        """
        arrays = [held.arrays[part] for part in held.format.arrays]
        if not all(array.flags.c_contiguous and array.flags.aligned for array in arrays):
            return False
        x = f"_x{len(self.lines)}"
        self.lines.append(f"{x} = {name}")
        structure = {part for part in held.arrays if held.format.arrays.get(part) != "real"}
        compared = [
            part
            for part, array in kept.items()
            if part in structure and isinstance(array, np.ndarray) and held.arrays[part].flags.writeable
        ]
        checks = [_needed(f"_type({x}) is {self._constant(type(value))} and {x}.shape == {held.shape}")]
        places = {part: f"{x}[{part!r}]" for part in held.arrays}
        if isinstance(value, Held):
            checks.append(_needed(f"{x}.format is {self._constant(held.format)}"))
            checks.append(f"{x} = {x}.arrays")
        else:
            own = held.format.own(value)
            if own is None or any(own[part] is not held.arrays[part] for part in structure):
                return False
            if held.format.attributes:
                places = {part: f"{x}.{name}" for part, name in held.format.attributes.items()}
                places |= {part: x for part in places if own[part] is value}
            else:
                checks += [f"{x} = {self._constant(held.format.own)}({x})", _needed(f"{x} is not None")]
        found = []
        for part, array in held.arrays.items():
            local = f"{x}_{part}"
            checks.append(f"{local} = {places[part]}")
            if part not in held.format.arrays:
                checks.append(_needed(f"{local} == {array!r}"))
                continue
            self.texts[name, part] = local
            same = self._same(array)
            if (name, part) in self.needed or part in compared:
                found.append(f"    {local} = {same}")
            checks.append(
                _needed(
                    f"{local} is {same}" + (f" or {self._is_like(local, array.shape, array)}" * (part not in structure))
                )
            )
        if isinstance(value, Held):
            # What it holds is what it held.
            self.lines.append(f"if {x} is {self._same(value)}:")
            self.lines += [*found, "    pass"]
            self.lines.append("else:")
            self.lines += [f"    {line}" for line in checks]
        else:
            self.lines += checks
        for part in compared:
            self._need(f"_array_equal({x}_{part}, {self._constant(kept[part])})")
        return True

    def _is_like(self, local: str, shape: tuple[int, ...], array: np.ndarray) -> str:
        """Whether it is an array of that shape and type, which compiled code takes."""
        is_right = f"{local}.dtype is {self._constant(array.dtype)} and {local}.shape == {shape}"
        flags = ("carray",) if array.flags.carray else ("c_contiguous", "aligned")
        order = " and ".join(f"{local}.flags.{flag}" for flag in flags)
        return f"(_type({local}) is _ndarray and {is_right} and {order})"

    def number(self, name: str, value: Any, of: Type) -> bool:
        """Take a real number as it comes, and integers and truth values if they are what they were."""
        if type(value) not in ((float,) if of == REAL else (int, bool)):
            return False
        local = self.texts[name, 0] = f"_n{len(self.lines)}"
        self.lines.append(f"{local} = {name}")
        self._need(f"_type({local}) is {self._constant(type(value))}")
        if of != REAL:
            self._need(f"{local} == {value!r}")
        return True

    def unused(self, name: str, value: Any) -> bool:
        """Take an input that says nothing but a shape; False if that is not to be seen."""
        if not hasattr(value, "shape") and type(value) not in (float, int, bool):
            return False
        x = f"_u{len(self.lines)}"
        self.lines.append(f"{x} = {name}")
        self._need(f"_type({x}) is {self._constant(type(value))}")
        if hasattr(value, "shape"):
            self._need(f"{x}.shape == {self._constant(value.shape)}")
        return True

    def result(
        self,
        sources: Callable[[str, Any, Any], Any],
        shape: tuple[int, ...],
        zero: Any,
        dtype: Any,
        checks: bool,
    ) -> None:
        """A dense result, or a number. checks: whether a NaN is looked into"""
        if not shape:
            self._need("out is None")
            call = self._call(sources)
            if checks:
                self.lines.append(f"_made = {call}")
                self._need("_made == _made")
                call = "_made"
            self.lines.append(f"return {call}")
            return
        self._output(shape, zero, dtype)
        self._run(sources, "out.reshape(-1)" if len(shape) > 1 else "out", checks)
        self.lines.append("return out")

    def gradients(
        self, sources: Callable[[str, Any, Any], Any], shapes: Mapping[str, tuple[int, ...]], dtype: Any, checks: bool
    ) -> None:
        """A number and its derivatives by inputs of those shapes."""
        self._need("out is None")
        of, made, results = np.dtype(dtype), [], []
        for k, (name, shape) in enumerate(shapes.items()):
            results.append(f"_g{k}")
            if shape:
                self.lines.append(f"_g{k} = {self._new(shape, 0.0, of)}")
                self.texts["gradient", name] = f"_g{k}.reshape(-1)"
            else:
                made.append(f"_g{k}")
        self.lines.append(f"{', '.join(['_made', *made, '_status'])} = {self._call(sources)}")
        self._need(" and ".join([f"_status == {INSIDE}", *(f"{x} == {x}" for x in ("_made", *made) if checks)]))
        self.lines.append(f"return _made, {{{', '.join(f'{name!r}: {x}' for name, x in zip(shapes, results))}}}")

    def entries(
        self,
        sources: Callable[[str, Any, Any], Any],
        pattern: Any,
        zero: Any,
        dtype: Any,
        formed: Callable[[Coordinates, Any], Any] | None,
        checks: bool,
    ) -> None:
        """A sparse result with a kept pattern. checks: whether a NaN is looked into"""
        self._output((pattern.indices.shape[1],), None if pattern.positions is None else zero, dtype)
        self._run(sources, "out", checks)
        self.lines.append("_made = _Unfrozen()")
        for field, text in (("shape", pattern.shape), ("indices", self._constant(pattern.indices)), ("values", "out")):
            self.lines.append(f"_made.{field} = {text}")
        self.lines.append("_made.__class__ = _Coordinates")
        self.lines.append(
            f"return {'_made' if formed is None else f'{self._constant(formed)}(_made, {self._constant(zero)})'}"
        )

    def _output(self, shape: tuple[int, ...], zero: Any, dtype: Any) -> None:
        of = np.dtype(dtype)
        self.lines.append(f"if out is None: out = {self._new(shape, zero, of)}")
        self.lines.append(f"elif not {self._is_like('out', shape, np.empty(0, of))}: break")
        if zero is not None:
            self.lines.append(f"else: out.fill({self._constant(zero)})")

    def _new(self, shape: tuple[int, ...], zero: Any, of: np.dtype) -> str:
        size = shape[0] if len(shape) == 1 else shape
        form = f"{size}" if of == np.float64 else f"{size}, {self._constant(of)}"
        if math.prod(shape) * of.itemsize < _SMALL and (zero is None or is_cleared(zero)):
            return f"_empty({form})" if zero is None else f"_cleared({form})"
        return f"_filled(None, {shape}, {self._constant(zero)}, {self._constant(of)})"

    def _run(self, sources: Callable[[str, Any, Any], Any], values: str, checks: bool) -> None:
        if self.built.is_inside and not checks:
            self.lines.append(self._call(sources, values))
        else:
            self._need(f"{self._call(sources, values)} == {INSIDE}")

    def _call(self, sources: Callable[[str, Any, Any], Any], values: str = "") -> str:
        built = self.built
        arguments, given = [], [sources(*argument) for argument in built.arguments]
        for (source, name, part), value in zip(built.arguments, given):
            known = self.texts.get((name, part))
            if source == "out" and name == "values":
                arguments.append(values)
            elif (source in ("array", "scalar") or name == "gradient") and known is not None:
                arguments.append(known)
            elif source == "space":
                arguments.append(f"_cleared({value.shape}, {self._constant(value.dtype)})")
            else:
                arguments.append(self._constant(value))
        return f"{self._constant(built.runner(sources))}({', '.join(arguments)})"

    def cached(self, of: CachedCalls) -> CachedCall:
        """The function, by which that may be called from now on."""
        return _written(of, self.lines, self.parameters, self.constants)


def _written(
    of: CachedCalls, lines: Sequence[str], parameters: Sequence[str], constants: Mapping[str, Any]
) -> CachedCall:
    """The function of that text, which calls anew where a line breaks."""
    names = ", ".join(constants)
    declared = ", ".join(["out=None", *(f"{name}=_absent" for name in parameters), "**_others"])
    given = "".join(f"{name!r}: {name}, " for name in parameters)
    text = [
        f"def make(_differing, {names}):",
        f"    def cached(*, {declared}):",
        "        while True:",
        *(f"            {line}" for line in lines),
        f"        return _differing({{{given}**_others}}, out)",
        "    return cached",
    ]
    return _maker("\n".join(text) + "\n")(_differing(weakref.ref(of)), **constants)


def _differing(of: weakref.ref[CachedCalls]) -> Callable[..., Any]:
    def call(given: Mapping[str, Any], out: Any) -> Any:
        kernel = _found(of)
        kernel.forget()
        return kernel.call_anew({name: value for name, value in given.items() if value is not _ABSENT}, out)

    return call


def product_of(of: CachedCalls, product: Product, given: Mapping[str, Any], sizes: Mapping[str, int]) -> CachedCall:
    """The outer product of results of other kernels, which look at their inputs themselves.

    sizes  of axes of inputs, which kernels take besides; inputs that they do not take say nothing but a shape
    """
    lines, constants = ["if _others: break"], {"_whole": product.whole}
    for k, (name, value) in enumerate(given.items()):
        # Whether derivatives are recorded may differ for other types.
        constants[f"_t{k}"] = type(value)
        lines.append(_needed(f"_type({name}) is _t{k}"))
        if isinstance(value, Coordinates):
            lines.append(_needed(f"_type({name}.values) is _ndarray"))
        if sizes and hasattr(value, "shape"):
            lines.append(_needed(f"{name}.shape == {tuple(value.shape)}"))

    def passed(names: Iterable[str]) -> str:
        return ", ".join(f"{name}={sizes.get(name, name)}" for name in names)

    arguments = [passed(product.passed)] if product.passed else []
    for name, factor in product.factors.items():
        constants[f"_{name}"] = factor
        arguments.append(f"{name}=_{name}({passed(factor.inputs)})")
    whole = f"return _whole({', '.join(arguments)}, out=out)"
    lines += ["try:", f"    {whole}", "except _NotExact:", "    break"]
    return _written(of, lines, tuple(given), constants)


def is_plain(semiring: Semiring) -> bool:
    """Whether every float is an element of the semiring."""
    return semiring.carrier == "float" and all(math.isinf(bound) for bound in semiring.domains[0])


def is_parameter(name: str) -> bool:
    """Whether an input may be a parameter of a cached call by its own name."""
    return name.isidentifier() and not (keyword.iskeyword(name) or name.startswith("_") or name == "out")


def _needed(condition: str) -> str:
    return f"if not ({condition}): break"


@lru_cache(256)
def _maker(text: str) -> Callable[..., CachedCall]:
    made: dict[str, Any] = {
        "_absent": _ABSENT,
        "_array_equal": np.array_equal,
        "_cleared": np.zeros,
        "_Coordinates": Coordinates,
        "_empty": np.empty,
        "_filled": filled,
        "_NotExact": NotExact,
        "_ndarray": np.ndarray,
        "_type": type,
        "_Unfrozen": Unfrozen,
    }
    exec(text, made)
    return made["make"]
