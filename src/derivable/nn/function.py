"""A Python function of finitely many values as a layer: probabilities of arguments in, of results out."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch

from derivable.bridge.torch import as_node
from derivable.circuit.graph.circuit import Circuit
from derivable.core import html
from derivable.core.arguments import integer, is_integer
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.core.lazy import hidden_names
from derivable.datalog.facts.inputs import InputMapping, Varying
from derivable.nn.automaton import START, Automaton, folded, logarithms, probabilities, tabulated
from derivable.nn.declared import checked_inputs, matched, with_fact_axis
from derivable.nn.inference import snap_to_zero, widened, within_unit
from derivable.nn.values import (
    batch_shape,
    require_distributions,
    require_fact_axis,
    require_factors,
    require_probabilities,
)

_MOST_INDEPENDENT = 20


class Function(torch.nn.Module):
    """A Python function of uncertain arguments, each with finitely many values.

        add = dv.nn.Function(lambda a, b: a + b, dv.categorical(range(10)), dv.categorical(range(10)))
        y = add(p1, p2)                     # p1, p2 [batch, 10] -> y [batch, 19], in the order of `add.values`

    f       any function whose results are hashable; it is called once for each combination of values, when the layer is
            made, and must depend on nothing else
    inputs  for each parameter of `f`, in order: `dv.categorical(values)`, one of whose values is the argument (a tuple
            where it has several columns); `dv.independent(tuples)`, where the argument is the tuple of those that hold;
            or `dv.independent(())`, where it is True or False

    `values` are the results, sorted if they have an order and else in the order of their first appearance. The layer
    takes one tensor [*batch, fact] for each parameter, in order or by its name, whose batch shapes broadcast, and
    returns the probability of each result, [*batch, value]. That of `dv.independent(())` is [*batch]. The arguments are
    independent of each other. Rows of `dv.categorical(values, factors=True)` need not add up to one.

    The function becomes an automaton that reads one argument after the other and remembers only what the results depend
    on: a sum of four digits has 1, 10, 19 and 28 states before its steps. Values and gradients are exact. A layer
    has the table and not `f`: it can be pickled, copied, and moved to a device. It has no parameters.

    Raises DomainError for inputs that are no choices and for more than ten million combinations, OperatorError with the
    arguments where `f` raises or its result is not hashable; when called ShapeError and DomainError, as
    `derivable.nn.Logic` does.
    """

    # torch.vmap names what it maps.
    __name__ = "Function"
    __dir__ = hidden_names("automaton")

    def __init__(self, f: Callable[..., Any], *inputs: InputMapping):
        super().__init__()
        self.inputs = checked_inputs(dict(zip(_parameters(f, len(inputs)), inputs)))
        _require_finite(self.inputs)
        self.length: int | None = None
        arguments = [_arguments(facts) for facts in self.inputs.values()]
        choices = [_choices(facts) for facts in self.inputs.values()]
        self._take(tabulated(f, arguments, choices))

    @classmethod
    def reduce(cls, f: Callable[[Any, Any], Any], item: InputMapping, length: int, initial: Any = START) -> Function:
        """The layer of `functools.reduce(f, items, initial)`, of `length` items, each a value of one choice.

            total = dv.nn.Function.reduce(operator.add, dv.categorical(range(10)), 1024)
            y = total(p)                    # p [batch, 1024, 10] -> y [batch, 9217]

        f        (value so far, item) -> value; called once for each pair of values
        item     `dv.categorical(values)`
        length   of the sequences. Shorter ones end in items that change nothing: `dv.categorical(range(-1, 10))` with
                 an `f` that returns its first argument for -1
        initial  the value before the first item; without it, the first item is the first value

        The layer takes one tensor [*batch, length, value of the item] and returns [*batch, value]. A call is one
        step for each item, over the pairs of a value so far and an item: linear in `length` where the fold has few
        values, such as remainders; a sum of n digits has 9 n + 1. Raises DomainError beyond ten million pairs.
        """
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        layer.inputs = checked_inputs({"items": item})
        _require_finite(layer.inputs)
        if not item.is_exclusive:
            raise DomainError(
                "a fold is over items that are one of a choice's values", hint="dv.categorical([False, True])"
            )
        layer.length = integer(length, "length", 1)
        layer._take(folded(f, _arguments(item), layer.length, initial))
        return layer

    def _take(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.values = automaton.values
        self.register_buffer("targets", torch.from_numpy(automaton.targets), persistent=False)

    def forward(self, *positional: Any, **named: Any) -> Any:
        """One tensor [*batch, fact] a parameter -> [*batch, value], the probabilities of `values`."""
        if (node := as_node(self, positional, named)) is not None:
            return node
        choices = self._choices_of(positional, named)
        return within_unit(probabilities(self.automaton, cast(torch.Tensor, self.targets), choices).movedim(0, -1))

    def log(self, *positional: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        """Like a call, with probabilities, but returns log-probabilities (nats) without underflow: what nll_loss takes.

        A result of probability 0 is -inf, and has no gradient.
        """
        choices = self._choices_of(positional, named)
        wide = [choice.double().clamp_min(0) for choice in choices]
        logs = logarithms(self.automaton, cast(torch.Tensor, self.targets), wide)
        return snap_to_zero(logs.to(choices[0].dtype).movedim(0, -1))

    def _choices_of(self, positional: tuple, named: Mapping[str, Any]) -> Sequence[torch.Tensor]:
        """The probabilities [choice, *batch] of each step's choices, checked."""
        tensors = with_fact_axis(self.inputs, matched(self.inputs, positional, named))
        dtype = torch.float32
        for name, tensor in tensors.items():
            self._check(name, tensor)
            dtype = torch.promote_types(dtype, tensor.dtype)
        wide = {
            name: tensor.to(dtype) if self.inputs[name].has_factors else widened(tensor, dtype)
            for name, tensor in tensors.items()
        }
        if self.length is not None:
            (items,) = wide.values()
            return items.movedim((-2, -1), (0, 1)).unbind()
        batch = batch_shape(wide)
        choices: list[torch.Tensor] = []
        for name, tensor in wide.items():
            facts = tensor.expand(*batch, tensor.shape[-1]).movedim(-1, 0)
            if self.inputs[name].is_exclusive:
                choices.append(facts)
            else:
                choices += torch.stack([1 - facts, facts], 1).unbind()
        return choices

    def _check(self, name: str, tensor: Any) -> None:
        facts = self.inputs[name]
        require_fact_axis(name, tensor, facts)
        if self.length is not None and (tensor.dim() < 2 or tensor.shape[-2] != self.length):
            raise ShapeError(
                f"input {name!r} has shape {list(tensor.shape)}; {self.length} items need "
                f"[*batch, {self.length}, {len(facts)}]",
                hint="shorter sequences end in items that change nothing, see `Function.reduce`",
            )
        if facts.has_factors:
            require_factors(name, tensor)
            return
        require_probabilities(name, tensor)
        if facts.is_exclusive:
            require_distributions(name, tensor, False)

    @property
    def circuit(self) -> Circuit:
        """The function as a circuit, for other semirings, queries and JAX; a new one in each call.

        Its roots are the results, its variables the facts of the inputs in order, for a fold item by item. A value of a
        choice is its literal alone: values of 0 and 1, and of 1 and 1, are the weights of one that is absent.
        """
        literals: list[np.ndarray] = []
        first = 1
        for facts in list(self.inputs.values()) * (self.length or 1):
            variables = np.arange(first, first + len(facts))
            literals += [variables] if facts.is_exclusive else [np.array([-one, one]) for one in variables.tolist()]
            first += len(facts)
        return self.automaton.circuit(literals)

    def explain(self) -> str:
        """The inputs, the results, and how many states the function has before each of its steps."""
        rows = [f"input  {name}: {facts!r}, tensor {self._shape(name)}" for name, facts in self.inputs.items()]
        rows.append(f"output [*batch, {len(self.values)}]: {_listed(self.values)}")
        rows.append(f"{len(self.automaton.steps)} steps, states before each: {_listed(self.automaton.sizes[:-1])}")
        return "\n".join(rows)

    def extra_repr(self) -> str:
        inputs = ", ".join(f"{name}: {len(facts)}" for name, facts in self.inputs.items())
        return f"{inputs}{'' if self.length is None else f' x {self.length}'} -> {len(self.values)} values"

    def _repr_html_(self) -> str:
        rows = [("input", name, repr(facts), self._shape(name)) for name, facts in self.inputs.items()]
        rows.append(("output", "", _listed(self.values), f"[*batch, {len(self.values)}]"))
        return "<div><b>Function</b></div>" + html.table(("", "parameter", "values", "tensor"), rows)

    def _shape(self, name: str) -> str:
        facts = self.inputs[name]
        if facts.is_scalar:
            return "[*batch]"
        return f"[*batch, {'' if self.length is None else f'{self.length}, '}{len(facts)}]"


def _parameters(f: Callable[..., Any], count: int) -> list[str]:
    """A name for each of the arguments. Raises DomainError for a function that does not take as many."""
    if not callable(f):
        raise DomainError(f"a layer's function is a {type(f).__name__}", hint="def f(a, b): ...")
    if not count:
        raise DomainError("a function of no choices has one result", hint="give each parameter its values")
    try:
        signature = inspect.signature(f)
    except ValueError:
        return [f"argument_{number}" for number in range(1, count + 1)]
    try:
        bound = signature.bind(*range(count)).arguments
    except TypeError:
        raise DomainError(
            f"the function takes {signature}, and {count} inputs are given", hint="give each parameter its values"
        ) from None
    named = [[name] if is_integer(at) else [f"{name}_{number}" for number in at] for name, at in bound.items()]
    return list(itertools.chain(*named))


def _require_finite(inputs: Mapping[str, Any]) -> None:
    for name, facts in inputs.items():
        if isinstance(facts, Varying) or not len(facts):
            raise DomainError(
                f"input {name!r} has no values that are known when the layer is made",
                hint="dv.categorical(values), dv.independent(tuples), or dv.independent(()) for True and False",
            )


def _arguments(facts: InputMapping) -> list[Any]:
    """The values that an argument may have, in the order of its choices."""
    if facts.is_scalar:
        return [False, True]
    values = [row[0] if len(row) == 1 else row for row in facts.tuples]
    if facts.is_exclusive:
        return values
    if len(values) > _MOST_INDEPENDENT:
        raise DomainError(
            f"{len(values)} independent facts are 2^{len(values)} arguments of a function",
            hint="fold over them, `dv.nn.Function.reduce(f, dv.categorical([False, True]), length)`",
        )
    masks = itertools.product([False, True], repeat=len(values))
    return [tuple(itertools.compress(values, mask)) for mask in masks]


def _choices(facts: InputMapping) -> list[int]:
    return [len(facts)] if facts.is_exclusive else [2] * len(facts)


def _listed(values: Sequence[Any]) -> str:
    shown = [*map(str, values)] if len(values) <= 8 else [*map(str, values[:4]), "...", *map(str, values[-2:])]
    return ", ".join(shown)
