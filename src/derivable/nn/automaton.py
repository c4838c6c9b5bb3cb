"""Functions of finitely many values as automata that read one argument after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from derivable.circuit.graph.builder import circuit_from_arrays
from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import AND, LITERAL, OR, TRUE
from derivable.core.diagnostics import DomainError, OperatorError
from derivable.core.progress import progress

MOST_CALLS = 10_000_000
"""Calls of a function that are made for its table: about two seconds of a lambda."""


class _Start:
    """The state before the first item of a fold that has no initial value."""

    def __repr__(self) -> str:
        return "the first item"


START = _Start()
_NAN = object()


@dataclass(frozen=True, eq=False)
class Automaton:
    """The states that a function's arguments lead to, read in order; a state is what the rest of the call depends on.

    targets  [pair of a state and a choice]: the number of the state that follows
    steps    for each step, where its targets begin and end: those of [state, choice], state by state
    sizes    [step + 1]  how many states there are before each step, and how many results after the last
    values   [result]  the results, in the order of their numbers
    """

    targets: np.ndarray
    steps: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    values: tuple[Any, ...]

    def circuit(self, literals: Sequence[np.ndarray]) -> Circuit:
        """The circuit whose roots are the results. literals: for each step [choice], the literal of each choice."""
        kinds, numbers = [np.array([TRUE], np.uint8)], [np.zeros(1, np.int64)]
        widths, children = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)]
        states, count = np.zeros(1, np.int64), 1
        for (start, stop), literal, size in zip(self.steps, literals, self.sizes[1:]):
            target = self.targets[start:stop]
            choices, pairs = len(literal), len(target)
            first_pair = count + choices
            state, choice = np.divmod(np.arange(pairs), choices)
            degrees = np.bincount(target, minlength=size)
            kinds.append(np.repeat(np.array([LITERAL, AND, OR], np.uint8), [choices, pairs, size]))
            numbers += [literal, np.zeros(pairs + size, np.int64)]
            widths += [np.zeros(choices, np.int64), np.full(pairs, 2), degrees]
            children += [
                np.stack([states[state], count + choice], 1).ravel(),
                first_pair + np.argsort(target, kind="stable"),
            ]
            states = first_pair + pairs + np.arange(size)
            count = first_pair + pairs + size
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(widths))])
        variables = max(int(np.abs(literal).max(initial=0)) for literal in literals)
        arrays = (np.concatenate(kinds), np.concatenate(numbers), offsets, np.concatenate(children))
        return circuit_from_arrays(*arrays, states, variables)


def tabulated(f: Callable[..., Any], arguments: Sequence[Sequence[Any]], choices: Sequence[Sequence[int]]) -> Automaton:
    """The smallest automaton of a function, which is called once for each combination of its arguments.

    arguments  for each argument its values
    choices    for each argument how many choices its value is made of, in order: their product is their number
    """
    calls = math.prod(map(len, arguments))
    if calls > MOST_CALLS:
        sizes = " x ".join(str(len(values)) for values in arguments)
        raise DomainError(
            f"{sizes} arguments are {calls:,} calls of the function, more than {MOST_CALLS:,}",
            hint="a function of two arguments that is folded needs few: `dv.nn.Function.reduce(f, choice, length)`; "
            "or make a layer for each part, with `dv.categorical(layer.values)` as an input of the next",
        )
    results = _Numbers()
    with progress("function", calls, enabled=None if calls > 100_000 else False) as advance:
        numbers = np.empty(calls, np.int64)
        for call, combination in enumerate(itertools.product(*arguments)):
            numbers[call] = results.number(_called(f, combination), combination)
            if call % 10_000 == 9_999:
                advance(10_000)
    order, values = _in_order(results.values)
    numbers = order[numbers]
    targets, sizes = [], [len(values)]
    for width in reversed([size for sizes_of_one in choices for size in sizes_of_one]):
        rows, numbers = np.unique(numbers.reshape(-1, width), axis=0, return_inverse=True)
        targets.append(rows.ravel())
        sizes.append(len(rows))
    ends = np.cumsum([0, *map(len, reversed(targets))]).tolist()
    steps = tuple(itertools.pairwise(ends))
    return Automaton(np.concatenate(targets[::-1]), steps, tuple(reversed(sizes)), values)


def folded(f: Callable[[Any, Any], Any], items: Sequence[Any], length: int, initial: Any = START) -> Automaton:
    """The automaton of `functools.reduce(f, chosen[, initial])`, where each of `length` items is one of `items`.

    A state is a value of the fold; the states of a step are the first of those of the next.
    """
    states = _Numbers()
    states.number(initial, (initial,))
    width, rows, sizes = len(items), [], [1]
    with progress("function", length) as advance:
        for step in range(length):
            for state in states.values[len(rows) : sizes[-1]]:
                if (len(rows) + 1) * width > MOST_CALLS:
                    raise DomainError(
                        f"a fold over {length:,} items has more than {len(rows):,} values after {step + 1:,} of them",
                        hint="keep in the state only what the result depends on: a remainder, a largest value, a flag",
                    )
                after = [item if state is START else _called(f, (state, item)) for item in items]
                rows.append([states.number(value, (state, item)) for value, item in zip(after, items)])
            sizes.append(len(states.values))
            advance()
    targets = np.array(rows, np.int64).ravel()
    is_reached = np.zeros(len(states.values), bool)
    is_reached[0] = True
    for size in sizes[:-1]:
        after_step = np.zeros_like(is_reached)
        after_step[targets.reshape(-1, width)[np.flatnonzero(is_reached[:size])]] = True
        is_reached = after_step
    reached = np.flatnonzero(is_reached)
    order, values = _in_order([states.values[state] for state in reached.tolist()])
    # What is not reached has the probability 0, and may be any result.
    results = np.zeros(len(states.values), np.int64)
    results[reached] = order
    before = sizes[-2] * width
    steps = (*((0, size * width) for size in sizes[:-2]), (len(targets), len(targets) + before))
    return Automaton(np.concatenate([targets, results[targets[:before]]]), steps, (*sizes[:-1], len(values)), values)


class _Numbers:
    """Distinct values by number, in the order of their appearance. NaN is one value."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: Any, arguments: tuple) -> int:
        try:
            key = value if value == value else _NAN
            number = self._numbers.setdefault(key, len(self.values))
        except (TypeError, ValueError):
            raise OperatorError(
                f"f{_shown(arguments)} is {_short(value)}, a {type(value).__name__}, which is not hashable",
                hint="return a number, a text or a tuple, so that equal results are one value",
            ) from None
        if number == len(self.values):
            self.values.append(value)
        return number


def _in_order(values: Sequence[Any]) -> tuple[np.ndarray, tuple[Any, ...]]:
    """[value] -> its number in order, and the values in order: sorted if they have an order, else as they are."""
    try:
        by_value = sorted(range(len(values)), key=values.__getitem__)
    except TypeError:
        by_value = list(range(len(values)))
    order = np.empty(len(values), np.int64)
    order[by_value] = np.arange(len(values))
    return order, tuple(values[number] for number in by_value)


def _called(f: Callable[..., Any], arguments: tuple) -> Any:
    """What the function returns. Raises OperatorError with the arguments where it raises."""
    try:
        return f(*arguments)
    except Exception as error:
        raise OperatorError(
            f"the function raises {type(error).__name__} for {_shown(arguments)}: {error}",
            hint="return a value of its own for arguments that have no result, such as None",
        ) from error


def _shown(arguments: tuple) -> str:
    return f"({', '.join(map(_short, arguments))})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def probabilities(automaton: Automaton, targets: torch.Tensor, choices: Sequence[torch.Tensor]) -> torch.Tensor:
    """Of each result, [value, *batch]; targets as the automaton has them, choices [choice, *batch]."""
    states = torch.ones_like(choices[0][:1])
    for (start, stop), choice, size in zip(automaton.steps, choices, automaton.sizes[1:]):
        states = _added(states[:, None] * choice[None], targets[start:stop], size)
    return states


def logarithms(automaton: Automaton, targets: torch.Tensor, choices: Sequence[torch.Tensor]) -> torch.Tensor:
    """The logarithms of `probabilities`, -inf for 0, which then has no derivative; choices are float64.

    A state is a number times a power of two. The power is one for a state of probability 0, too, whose derivative by a
    choice of probability 0 then is that of the number; a logarithm would have none there.
    """
    states = torch.ones_like(choices[0][:1])
    powers = torch.zeros_like(states.detach())
    for (start, stop), choice, size in zip(automaton.steps, choices, automaton.sizes[1:]):
        step = targets[start:stop]
        with torch.no_grad():
            terms = powers.repeat_interleave(len(choice), 0)
            after = terms.new_full((size, *terms.shape[1:]), -torch.inf)
            after = after.scatter_reduce(0, _as_index(step, terms), terms, "amax")
        sums = cast(torch.Tensor, _ScaledStep.apply(states, choice, powers, after, step))
        with torch.no_grad():
            shifts = torch.where(sums > 0, sums.frexp().exponent, 0).to(powers)
        states, powers = sums * (-shifts).exp2(), after + shifts
    is_possible = states > 0
    return torch.where(is_possible, torch.where(is_possible, states, 1).log() + powers * math.log(2), -torch.inf)


def _added(pairs: torch.Tensor, targets: torch.Tensor, size: int) -> torch.Tensor:
    """Sums [size, *batch] of pairs [state, choice, *batch] with the same target."""
    terms = pairs.flatten(0, 1)
    return terms.new_zeros(size, *terms.shape[1:]).scatter_add(0, _as_index(targets, terms), terms)


def _as_index(targets: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    return targets.reshape(-1, *[1] * (terms.dim() - 1)).expand(terms.shape)


class _ScaledStep(torch.autograd.Function):
    """Sums of states times choices times 2^(power before - power after).

    Nothing of the size of all pairs is kept for the derivatives, and these are made of operations that have some.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(states, choices, before, after, targets) -> torch.Tensor:
        return _added(states[:, None] * choices[None] * _scales(before, after, targets), targets, len(after))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, adjoint: torch.Tensor) -> tuple:
        states, choices, before, after, targets = ctx.saved_tensors
        scales = _scales(before, after, targets)
        of_pairs = adjoint.index_select(0, targets).unflatten(0, scales.shape[:2]) * scales
        return (of_pairs * choices[None]).sum(1), (of_pairs * states[:, None]).sum(0), None, None, None

    @staticmethod
    def jvp(ctx: Any, of_states: torch.Tensor, of_choices: torch.Tensor, *_: Any) -> torch.Tensor:
        states, choices, before, after, targets = ctx.saved_tensors
        of_pairs = of_states[:, None] * choices[None] + states[:, None] * of_choices[None]
        return _added(of_pairs * _scales(before, after, targets), targets, len(after))


def _scales(before: torch.Tensor, after: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """[state, choice, *batch]"""
    pairs = after.index_select(0, targets).unflatten(0, (len(before), -1))
    return (before[:, None] - pairs).exp2()
