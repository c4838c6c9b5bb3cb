"""A program: an expression, its inputs, and the type of its result."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import BindingError, DomainError, LimitError
from derivable.tensor.language import nodes as t
from derivable.tensor.language.check import check
from derivable.tensor.language.guards import guarded
from derivable.tensor.language.text import NAME, RESERVED
from derivable.tensor.language.types import REAL, Type

if TYPE_CHECKING:
    from derivable.tensor.optimisation.passes import Step


@dataclass(frozen=True)
class Stage:
    """A tensor or a number that is computed before a program, in a semiring of its own, and has a name in it."""

    name: str
    program: Program
    semiring: Semiring


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """An expression of SDQLite over named inputs. It never changes, and programs of the same text are equal.

    node    the expression
    inputs  {name: Type} of its free variables, in the order in which they were declared
    zero    the type of the result, if nothing else says it, as the expression is a zero of any order
    type    of the result
    origin  of a derivative the program that was differentiated
    steps   what `gradient`, `optimise` and their kin did to make it, in order; no part of what makes programs equal
    stages  what is computed first, each of the inputs and the stages before it: of a derivative in another semiring
            which terms its sums take
    semiring  the name of the only one in which it means something; None if it may run in any
    is_guarded  whether its sums run over all entries that are stored, and conditions say where zeros are none: so it is
            of what `gradient`, `optimise` and their kin made

    Raises BindingError and TypeMismatchError as `check`.
    """

    node: t.Node
    inputs: Mapping[str, Type]
    zero: Type = REAL
    origin: Program | None = None
    steps: tuple[Step, ...] = ()
    stages: tuple[Stage, ...] = ()
    semiring: str | None = None
    is_guarded: bool = False
    type: Type = field(init=False)

    def __post_init__(self) -> None:
        inputs = dict(self.inputs)
        for name in inputs:
            if not isinstance(name, str):
                raise BindingError(f"the input {name!r} is no name", hint="names are texts")
            if name in RESERVED:
                raise BindingError(f"the input {name!r} is a word of the language", hint="choose another name")
            if not re.fullmatch(NAME, name):
                raise BindingError(f"the input {name!r} is no name", hint="a name has letters, digits, `_` and `'`")
        object.__setattr__(self, "inputs", MappingProxyType(inputs))
        with _not_too_deep():
            object.__setattr__(self, "type", check(self.node, self.types) or self.zero)

    @classmethod
    def given(cls, value: Any, what: str) -> Program:
        """A program that a user gives. Raises DomainError for what is none; what: is done with it, for messages"""
        if isinstance(value, Program):
            return value
        hint = "`dv.tensor.parse` makes one of a text and the types of its inputs"
        if isinstance(getattr(value, "program", None), Program):
            hint = "give the program that it was made of, its `program`"
        raise DomainError(f"a {type(value).__name__} is {what}, where a program is needed", hint=hint)

    def guarded(self, semiring: Semiring | None) -> Program:
        """The same program with guards, for a semiring; None for any."""
        if self.is_guarded:
            return self
        return replace(self, node=guarded(self.node, semiring), is_guarded=True)

    @property
    def types(self) -> dict[str, Type]:
        """Of all free variables of the expression: of the inputs and of the stages."""
        return {**self.inputs, **{stage.name: stage.program.type for stage in self.stages}}

    def __str__(self) -> str:
        with _not_too_deep():
            return str(self.node)

    def __call__(
        self,
        *,
        semiring: str | Semiring = "real",
        output: str | None = None,
        shape: tuple[int, ...] | None = None,
        backend: str | None = None,
        **values: Any,
    ) -> Any:
        """The result of the program.

        semiring  what `+`, `*`, zero and one are
        output    the form of a tensor: "numpy" for a dense array, "coordinates", "scipy_csr", ...: see `values.FORMS`.
                  None: vectors are dense, and tensors of higher order are where all inputs are; else coordinates
        shape     of the result, where its keys are computed and nothing else says it
        backend   "torch": as gathers and sums of torch tensors, on their device; see `compile`
        values    for each input a number, or a tensor in any form that `values.coordinates` takes

        Torch tensors that require gradients, or stand under `torch.func`, and JAX arrays give results of their library
        with derivatives of any order: dense ones, and sparse ones as torch's COO and JAX's BCOO.

        Raises DomainError for an input that is missing or unknown, and what `values.coordinates` raises.
        """
        from derivable.tensor.call.run import run, run_in_graph
        from derivable.tensor.call.tracked import is_read

        if is_read():
            return run_in_graph(self, values, semiring, output, shape, backend)
        with _not_too_deep():
            return run(self, values, semiring=semiring, output=output, shape=shape, backend=backend)

    def explain(self, stage: str | None = None, /, **values: Any) -> str:
        """The program at a stage of its way to a kernel; all stages, if none is asked for.

        stage   "logical"         the program as it was written; of a derivative, what was differentiated
                "differentiated"  the derivative before it is simplified
                "optimised"       the cheapest program that was found, and what it gains
                "physical"        with the definitions of the storage of its inputs
                "loops"           the kernels, as loop IR
                "source"          their text for LLVM
                "passes"          what each pass did: how long it took, operations and cost of loops before and after
                the name of a pass, as "fusion": the program after it
        values  inputs as of a call, by whose sizes, entries and storage it goes. Without them matrices are taken to be
                compressed by rows and to have 10,000 rows with 10 entries in each, and vectors to be dense

        `compile(program, formats).explain(stage)` shows it for other formats, and with passes switched off.

        Raises DomainError for an unknown stage, UnsupportedError for "differentiated" of what is no derivative.
        """
        return self.shown(None, stage, values)

    def shown(self, kernel: Any, stage: str | None, values: Mapping[str, Any]) -> str:
        """As `explain`, of a kernel of the program; None stands for one that `compile` makes."""
        from derivable.tensor.show.explain import explain

        with _not_too_deep():
            return explain(self, kernel, stage, values)

    def __repr__(self) -> str:
        inputs = {name: str(of) for name, of in self.inputs.items()}
        return f"{type(self).__name__}({str(self)!r}, {inputs})"

    def __reduce__(self) -> tuple:
        # A read-only view has no pickled form.
        return type(self), (
            self.node, dict(self.inputs), self.zero, self.origin, self.steps, self.stages, self.semiring,
            self.is_guarded,
        )  # fmt: skip

    @cached_property
    def _identity(self) -> tuple[Any, ...]:
        return str(self), self.type, tuple(self.inputs.items()), self.stages, self.semiring, self.is_guarded

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Program) and self._identity == other._identity

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self._identity)


@contextmanager
def _not_too_deep() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        # The cause would be a thousand lines.
        raise LimitError(
            "the program is nested too deep", hint="make several programs of it, each with the results of others"
        ) from None
