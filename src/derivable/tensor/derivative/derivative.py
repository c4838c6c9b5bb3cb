"""Derivatives of programs, as programs.

The axes of a derivative are those of the result, then those of the variable: the gradient of a scalar has the axes of
the variable. It is an expression of the same language, so it can be differentiated again.

Modes, which give the same entries:

    forward     the scalar forward mode, once for every entry of the variable
    tensorised  the tensorised forward mode, for all of them at once
    reverse     the transposed tangent, once for every entry of the result

Source: section 4 of Shaikhha, Huot and Hashemian, nabla-SD (2023), for both forward modes and `gradient`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from derivable.algebra import semirings
from derivable.core.diagnostics import BindingError, DomainError, TypeMismatchError, UnsupportedError
from derivable.core.names import FreshNames
from derivable.core.registry import suggestion
from derivable.tensor.analysis.axes import axis_sizes, size_inputs
from derivable.tensor.analysis.loop_cost import Costs
from derivable.tensor.analysis.support import densify_loops, every_index
from derivable.tensor.derivative.forward import differentiate
from derivable.tensor.derivative.reverse import transpose
from derivable.tensor.derivative.selection import in_reals
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables, names_in, unique_names
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import INT, Type, product
from derivable.tensor.optimisation.normalise import scalar_products
from derivable.tensor.optimisation.optimisation import costs_of
from derivable.tensor.optimisation.passes import AFTER, DIFFERENTIATION, Setting, Step, Switches, run_passes, switched
from derivable.tensor.optimisation.saturate import share

Mode = Literal["forward", "tensorised", "reverse"]
Pattern = Literal["full", "own"]
MODES: tuple[Mode, ...] = ("forward", "tensorised", "reverse")
PATTERNS: tuple[Pattern, ...] = ("full", "own")


def gradient(
    program: Program,
    wrt: str,
    mode: Mode | None = None,
    pattern: Pattern = "full",
    semiring: str = "real",
    *,
    passes: Switches = None,
    formal: bool = False,
) -> Program:
    """The derivative of a program by one of its inputs.

    wrt       a real or tensor input, of order m
    mode      by default "reverse" for a scalar, "forward" by a scalar, and else "tensorised"
    pattern   "full": all entries. Where nothing else bounds them, an axis of the result is as long as that of the
              variable or of another input, whose size is then an input of the derivative: `support.size_name`.
              "own": those entries at which the variable has one
    semiring  in which the program runs. Its derivative is by numbers, and runs in the real one: of a minimum that of
              the term that attains it, the first one where several do
    formal    whether it is the formal derivative, which runs in the same semiring: how the rest of a polynomial adds
              up, as the outside weights of a derivation or the best way to complete a part of a path
    passes    {name: whether it runs} of passes that are not to run as they do by default: `explain("passes")` has them

    returns   a program whose result has the n axes of the program's result, then the m axes of the variable

    A sum runs over the entries that are there, and for a body that is not zero where its value is, as `exp(a)`, this
    is so in the derivative too.

    Raises BindingError for an unknown input, TypeMismatchError if it or the result is not real, DomainError for an
    unknown mode, pattern or pass, and UnsupportedError where the gradient has no known extent, for a semiring whose
    sums have no derivative, and for formal derivatives of functions of real numbers.
    """
    return _Derivative(program, wrt, pattern, semiring, passes, formal).by(mode)


def jacobian(
    program: Program,
    wrt: str,
    mode: Mode | None = None,
    pattern: Pattern = "full",
    semiring: str = "real",
    *,
    passes: Switches = None,
    formal: bool = False,
) -> Program:
    """`gradient`, under its name for results that are tensors."""
    return gradient(program, wrt, mode, pattern, semiring, passes=passes, formal=formal)


def hessian(
    program: Program, wrt: str, pattern: Pattern = "full", semiring: str = "real", *, passes: Switches = None
) -> Program:
    """The second derivatives of a scalar program, of order 2 m: the tensorised forward mode of its reverse mode.

    Arguments and errors as of `gradient`; TypeMismatchError if the result is no scalar.
    """
    if not Program.given(program, "differentiated").type.is_scalar:
        raise TypeMismatchError(
            f"a Hessian is of a scalar, and the result of the program is {program.type}",
            hint="`jacobian` of `jacobian` has all second derivatives of a tensor",
        )
    first = gradient(program, wrt, pattern=pattern, semiring=semiring, passes=passes)
    return gradient(first, wrt, "tensorised", pattern, passes=passes)


def jvp(
    program: Program,
    wrt: str,
    pattern: Pattern = "full",
    semiring: str = "real",
    *,
    passes: Switches = None,
    formal: bool = False,
) -> Program:
    """The derivative in one direction: a program with one more input, the last, called `<wrt>_dot` if that is free.

    The direction has the type of the variable, and the result that of the program. With the pattern "own" the
    direction may have no other entries than the variable. Errors as of `gradient`.
    """
    derivative = _Derivative(program, wrt, pattern, semiring, passes, formal)
    dot = derivative.fresh(f"{wrt}_dot")
    return derivative.finished(derivative.tangent(t.Var(dot)), {dot: program.inputs[wrt]}, program.type)


def vjp(
    program: Program,
    wrt: str,
    pattern: Pattern = "full",
    semiring: str = "real",
    *,
    passes: Switches = None,
    formal: bool = False,
) -> Program:
    """The derivative of the inner product of the result with an adjoint: a program with one more input, the last,
    called `adjoint` if that is free.

    The adjoint has the type of the result, and the result that of the variable, in one pass. Errors as of `gradient`.
    """
    derivative = _Derivative(program, wrt, pattern, semiring, passes, formal)
    adjoint = derivative.fresh("adjoint")
    node = derivative.masked(derivative.adjoint(t.Var(adjoint)))
    return derivative.finished(node, {adjoint: program.type}, program.inputs[wrt])


class _Derivative:
    """A program in A-normal form, and how its derivatives by one input are put together."""

    def __init__(self, program: Program, wrt: str, pattern: Pattern, semiring: str, passes: Switches, formal: bool):
        _check(program, wrt, pattern, semiring)
        if not formal:
            program, semiring = in_reals(program, semiring), "real"
        self.origin, program = program, program.guarded(semirings.get(semiring))
        self.program, self.wrt, self.pattern, self.semiring = program, wrt, pattern, semiring
        self.type = program.inputs[wrt]
        self.sizes = size_inputs(program.inputs)
        inputs = {**program.types, **self.sizes}
        on = switched(passes)
        costs = costs_of(program) if "presaturation" in on else Costs({}, {})
        self.setting = Setting(inputs, on, frozenset(self.sizes), costs)
        self.steps: list[Step] = []
        node = run_passes(program.node, ("presaturation",), self.setting, self.steps)
        # The adjoint of what a loop does not depend on is added up in it, and passed on once.
        node = scalar_products(share(unique_names(node), program.types), program.types)
        if pattern == "full":
            node = densify_loops(node, program.types, wrt, is_real=semiring == "real")
        self.node = run_passes(node, ("anf",), self.setting, self.steps)
        self.start = time.perf_counter()
        self.fresh = FreshNames(names_in(self.node) | set(program.types) | set(self.sizes))

    def by(self, mode: Mode | None) -> Program:
        if mode is None:
            mode = "forward" if self.type.is_scalar else "reverse" if self.program.type.is_scalar else "tensorised"
        if mode not in MODES:
            raise _unknown("mode", mode, MODES)
        if mode == "reverse":
            node = self.reverse()
        else:
            node = self.tensorised() if mode == "tensorised" else self.forward()
        return self.finished(node, {}, product(self.program.type, self.type))

    def tangent(self, of_variable: t.Node) -> t.Node:
        return differentiate(self.node, {self.wrt: of_variable}, self.semiring)

    def adjoint(self, of_result: t.Node) -> t.Node:
        dot = self.fresh(f"{self.wrt}_dot")
        tangent = run_passes(self.tangent(t.Var(dot)), ("anf",), self.setting, [])
        return transpose(tangent, of_result, [dot])[dot]

    def tensorised(self) -> t.Node:
        """The tangent for the one-hot tensors of all entries together, of figure 7."""
        if self.type.is_scalar:
            return self.tangent(t.One())
        dot = self.fresh(f"{self.wrt}_dot")
        tangent = self.tangent(t.Var(dot))
        keys = self.keys()
        if self.pattern == "full":
            one_hots = _loops_over_indices(keys, self.extent(), _singletons(keys, t.One()), is_nested=True)
            return t.Let(dot, one_hots, tangent)
        # An entry of the one-hot tensors has the one of the pattern, so that it can be looked up there.
        mask = self.fresh(f"{self.wrt}_mask")
        ones = self.at_entries(self.keys(), t.Var(self.wrt), lambda value: t.One())
        one_hots = self.at_entries(keys, t.Var(mask), lambda value: _singletons(keys, value))
        return t.Let(mask, ones, t.Let(dot, one_hots, tangent))

    def forward(self) -> t.Node:
        """The tangents for the one-hot tensors, one by one."""
        if self.type.is_scalar:
            return self.tangent(t.One())
        keys = self.keys()
        body = t.Multiply(self.tangent(_singletons(keys, t.One())), _singletons(keys, t.One()))
        if self.pattern == "full":
            return _loops_over_indices(keys, self.extent(), body)
        return self.loops_over_entries(keys, t.Var(self.wrt), body)

    def reverse(self) -> t.Node:
        """The transposed tangent for the one-hot adjoints of the result, one by one."""
        if self.program.type.is_scalar:
            return self.masked(self.adjoint(t.One()))
        keys = [t.Var(self.fresh("o")) for _ in range(self.program.type.order)]
        body = _singletons(keys, self.masked(self.adjoint(_singletons(keys, t.One()))))
        if self.pattern == "own":
            return self.loops_over_entries(keys, self.program.node, body)
        sizes = axis_sizes(self.program.node, self.program.inputs)
        if len(sizes) != len(keys) or any(size is None for size in sizes):
            raise UnsupportedError(
                "the result of the program has an axis of unknown size, so its adjoints cannot be taken one by one",
                hint='mode="tensorised" needs no sizes',
            )
        return _loops_over_indices(keys, [size for size in sizes if size], body)

    def masked(self, adjoint: t.Node) -> t.Node:
        """Of an adjoint of the variable, the entries that are asked for."""
        if self.pattern == "full":
            return adjoint
        bar = self.fresh(f"{self.wrt}_bar")
        return t.Let(bar, adjoint, self.chosen(t.Var(bar), t.Var(self.wrt), self.keys()))

    def chosen(self, node: t.Node, entries: t.Node, keys: list[t.Var]) -> t.Node:
        if not keys:
            return node
        row, value = self.fresh("r"), self.fresh("a")
        inner = t.Let(row, t.Lookup(node, keys[0]), self.chosen(t.Var(row), t.Var(value), keys[1:]))
        return t.Sum(keys[0].name, value, entries, t.Singleton(keys[0], inner, True))

    def at_entries(self, keys: list[t.Var], entries: t.Node, build: Callable[[t.Node], t.Node]) -> t.Node:
        """The tensor of what `build` makes of the values of entries, whose keys get those names."""
        if not keys:
            return build(entries)
        value = self.fresh("a")
        inner = self.at_entries(keys[1:], t.Var(value), build)
        return t.Sum(keys[0].name, value, entries, t.Singleton(keys[0], inner, True))

    def loops_over_entries(self, keys: list[t.Var], entries: t.Node, body: t.Node) -> t.Node:
        if not keys:
            return body
        value = self.fresh("a")
        return t.Sum(keys[0].name, value, entries, self.loops_over_entries(keys[1:], t.Var(value), body))

    def keys(self) -> list[t.Var]:
        return [t.Var(self.fresh("i")) for _ in range(self.type.order)]

    def extent(self) -> list[t.Node]:
        return [t.Var(name) for name in size_inputs({self.wrt: self.type})]

    def finished(self, node: t.Node, more: dict[str, Type], type_: Type) -> Program:
        program = self.program
        types = {**program.types, **self.sizes, **more}
        self.steps.append(Step(DIFFERENTIATION, self.node, node, time.perf_counter() - self.start))
        node = run_passes(node, AFTER, replace(self.setting, types=types), self.steps)
        used = free_variables(node)
        sizes = {name: of for name, of in self.sizes.items() if name in used}
        inputs = {**program.inputs, **sizes, **more}
        return Program(
            node, inputs, type_, self.origin, tuple(self.steps), program.stages, program.semiring, is_guarded=True
        )


def _singletons(keys: list[t.Var], value: t.Node) -> t.Node:
    for key in reversed(keys):
        value = t.Singleton(key, value)
    return value


def _loops_over_indices(keys: list[t.Var], sizes: list[t.Node], body: t.Node, is_nested: bool = False) -> t.Node:
    """is_nested: whether what the body gives stands at the keys"""
    for key, size in zip(reversed(keys), reversed(sizes)):
        body = t.Sum("_", key.name, every_index(size), t.Singleton(key, body, True) if is_nested else body)
    return body


def _check(program: Program, wrt: str, pattern: Pattern, semiring: str) -> None:
    Program.given(program, "differentiated")
    if not isinstance(wrt, str):
        raise DomainError(f"`wrt` is {wrt!r}", hint="it is the name of one input; of several, one after the other")
    if wrt not in program.inputs:
        known = ", ".join(program.inputs) or "none"
        raise BindingError(
            f"the program has no input `{wrt}`", hint=suggestion(wrt, program.inputs, f"its inputs are {known}")
        )
    for name in size_inputs(program.inputs).keys() & program.inputs.keys():
        if program.inputs[name] != INT:
            raise BindingError(f"the input `{name}` has the name of a size, and is {program.inputs[name]}")
    for what, type_ in ((f"`{wrt}`", program.inputs[wrt]), ("the result of the program", program.type)):
        if type_.element != "real":
            raise TypeMismatchError(f"only reals have derivatives, and {what} is {type_}")
    if "dense_int" in program.inputs[wrt].indices:
        raise TypeMismatchError(
            f"`{wrt}` is an array of a storage format",
            hint="differentiate the logical program",
        )
    if pattern not in PATTERNS:
        raise _unknown("pattern", pattern, PATTERNS)
    if program.semiring not in (None, semirings.get(semiring).name):
        raise UnsupportedError(
            f"the program is a derivative of numbers: it runs in the semiring {program.semiring!r}",
            hint="leave `semiring=` out",
        )
    if not semirings.get(semiring).commutative:
        raise UnsupportedError(f"the semiring {semiring!r} is not commutative, so its products have no derivatives")


def _unknown(what: str, value: object, known: tuple[str, ...]) -> DomainError:
    return DomainError(f"there is no {what} {value!r}", hint=suggestion(value, known, f"known are {', '.join(known)}"))
