"""Tunable probabilities, learned from interpretations by expectation maximisation or by gradient.

The gradient of the logarithm of a circuit for the logarithms of its weights is how often its derivations are expected
to use each literal. Expectation maximisation takes the relative frequencies: a derivation is the complete datum, its
weight a product of parameters, and the likelihood, which is the sum of these weights, never falls (Dempster, Laird and
Rubin, 1977). Parameters of which no derivation uses a literal stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from derivable.circuit.fold.evaluate import value_and_gradient
from derivable.core.progress import Deadline
from derivable.datalog.exact.interpretations import FAILS, HOLDS, Observations
from derivable.datalog.tags.random_facts import RandomFacts, Tied

# Adam's constants (Kingma and Ba, 2015).
MOMENTUM, SQUARES, TINY = 0.9, 0.999, 1e-8


@dataclass(frozen=True, eq=False)
class Space:
    """The parameters: tunable probabilities, and behind them those that choices fall on nothing.

    starts   [parameter] where they start, NaN for a start that is drawn
    choices  (parameters of one choice, what they add up to)
    is_share bool [parameter] whether it is one of a choice
    """

    starts: np.ndarray
    choices: tuple[tuple[np.ndarray, float], ...]
    is_share: np.ndarray

    @staticmethod
    def of(
        starts: Sequence[float | None], random: Sequence[RandomFacts], tied: Sequence[Sequence[Tied]]
    ) -> tuple[Space, list[np.ndarray]]:
        """The parameters of facts, of which these are tied, and for each of them the parameter [variable], -1 for
        none."""
        space_of: dict[tuple[int, ...], tuple[int | None, float]] = {}
        numbers = []
        total = len(starts)
        for facts, some in zip(random, tied):
            number = np.full(len(facts.probabilities), -1, np.int64)
            for one in some:
                number[one.variables] = one.parameter
            nothing = set(facts.nothing)
            for group in facts.groups:
                tuned = group[number[group] >= 0]
                if not len(tuned):
                    continue
                key = tuple(sorted({*number[tuned].tolist()}))
                rest = [variable for variable in group.tolist() if variable in nothing]
                if key not in space_of:
                    fixed = sum(facts.probabilities[v] for v in group if number[v] < 0 and v not in nothing)
                    space_of[key] = (total if rest else None, 1.0 - fixed)
                    total += bool(rest)
                slack = space_of[key][0]
                if rest and slack is not None:
                    number[rest] = slack
            numbers.append(number)
        values = np.array([np.nan if start is None else start for start in starts] + [0.0] * (total - len(starts)))
        choices = []
        is_share = np.zeros(total, bool)
        for key, (slack, mass) in space_of.items():
            members = np.array([*key, *(() if slack is None else (slack,))])
            is_share[members] = True
            if slack is not None:
                values[slack] = mass - values[list(key)].sum()
            choices.append((members, mass))
        return Space(values, tuple(choices), is_share), numbers

    def begin(self, generator: np.random.Generator, is_first: bool) -> np.ndarray:
        """Values to start from: those that are written, the first time, others drawn."""
        drawn = np.where(self.is_share, generator.exponential(size=len(self.starts)), 0.0)
        drawn[~self.is_share] = generator.uniform(0.1, 0.9, int((~self.is_share).sum()))
        values = np.where(np.isnan(self.starts), drawn, self.starts) if is_first else drawn
        for members, mass in self.choices:
            is_open = np.isnan(self.starts[members]) if is_first else np.ones(len(members), bool)
            left = mass - values[members[~is_open]].sum()
            some = members[is_open]
            values[some] *= left / values[some].sum() if len(some) else 1.0
        return values


@dataclass(frozen=True, eq=False)
class Uses:
    """The logarithm of the likelihood, and how often parameters are expected to be used: as they are, and as one
    minus them."""

    log_likelihood: float
    holds: np.ndarray
    fails: np.ndarray


def uses(data: Sequence[Observations], values: np.ndarray) -> Uses:
    """Under these values [parameter], one pass up and one down for each circuit."""
    total, holds, fails = 0.0, np.zeros(len(values)), np.zeros(len(values))
    for one in data:
        logs, positive, negative = folded(one, values)
        total += float(one.counts @ logs)
        is_tuned = one.parameters >= 0
        numbers = one.parameters[is_tuned]
        holds += np.bincount(numbers, positive[is_tuned], len(values))
        fails += np.bincount(numbers, negative[is_tuned], len(values))
    return Uses(total, holds, fails)


def folded(one: Observations, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log-likelihoods [row], the expected uses of the two literals [row, fact] by all interpretations of a row)."""
    count = one.parameters.shape[1]
    facts = np.where(one.parameters >= 0, values[one.parameters], one.fact_probabilities)
    with np.errstate(divide="ignore"):
        positive = np.log(np.concatenate([facts, one.seen != FAILS], axis=1))
        absent = np.where(one.is_choice, 1.0, 1.0 - facts)
        negative = np.log(np.concatenate([absent, one.seen != HOLDS], axis=1))
    logs, of_positive, of_negative = value_and_gradient(one.circuit, positive, negative, "log", one.counts[:, None])
    assert of_positive is not None
    assert of_negative is not None
    return logs[:, 0], of_positive[:, :count], np.where(one.is_choice, 0.0, of_negative[:, :count])


@dataclass(frozen=True, eq=False)
class Learned:
    """values [parameter]; the objective before each step and at the end; whether steps no longer change it."""

    values: np.ndarray
    log_likelihood: float
    curve: list[float]
    is_converged: bool


# What a step makes of the values and how they are used.
Step = Callable[[np.ndarray, Uses], np.ndarray]


def climb(
    data: Sequence[Observations],
    values: np.ndarray,
    prior: np.ndarray,
    step: Step,
    steps: int,
    tolerance: float,
    deadline: Deadline,
    advance: Callable[..., None],
) -> Learned:
    """Take steps until the objective, the log-likelihood and that of the prior [2, parameter], changes by less than the
    tolerance."""
    curve: list[float] = []
    best: tuple[float, np.ndarray, float] = (-np.inf, values, -np.inf)
    is_converged = False
    while True:
        deadline.remaining()
        uses_now = uses(data, values)
        curve.append(uses_now.log_likelihood + log_prior(values, prior))
        if curve[-1] > best[0]:
            best = curve[-1], values, uses_now.log_likelihood
        is_converged = len(curve) > 1 and abs(curve[-1] - curve[-2]) <= tolerance
        if is_converged or len(curve) > steps:
            return Learned(best[1], best[2], curve, is_converged)
        advance(1, f"log-likelihood {uses_now.log_likelihood:.6g}")
        values = step(values, uses_now)


def log_prior(values: np.ndarray, prior: np.ndarray) -> float:
    """That of pseudo-counts [2, parameter]."""
    holds, fails = prior > 0
    return float(prior[0, holds] @ np.log(values[holds]) + prior[1, fails] @ np.log1p(-values[fails]))


def maximised(space: Space, prior: np.ndarray) -> Step:
    """The step of expectation maximisation: relative frequencies."""

    def step(values: np.ndarray, seen: Uses) -> np.ndarray:
        holds, fails = seen.holds + prior[0], seen.fails + prior[1]
        total = holds + fails
        after = np.where(space.is_share | (total <= 0), values, holds / np.where(total > 0, total, 1.0))
        for members, mass in space.choices:
            of_choice = holds[members].sum()
            if of_choice > 0:
                after[members] = mass * holds[members] / of_choice
        return after

    return step


def ascent(space: Space, prior: np.ndarray, rate: float, num_examples: int) -> Step:
    """A step of Adam along the gradient, of the logits of probabilities and of the logarithms of shares."""
    first, second = np.zeros(len(space.starts)), np.zeros(len(space.starts))
    number = 0

    def step(values: np.ndarray, seen: Uses) -> np.ndarray:
        nonlocal number
        number += 1
        holds, fails = seen.holds + prior[0], seen.fails + prior[1]
        gradient = holds * (1.0 - values) - fails * values
        for members, mass in space.choices:
            gradient[members] = holds[members] - values[members] / mass * holds[members].sum()
        gradient /= num_examples
        first[:] = MOMENTUM * first + (1.0 - MOMENTUM) * gradient
        second[:] = SQUARES * second + (1.0 - SQUARES) * gradient**2
        change = first / (1.0 - MOMENTUM**number) / (np.sqrt(second / (1.0 - SQUARES**number)) + TINY)
        odds = np.exp(rate * change)
        after = values * odds / (1.0 - values + values * odds)
        for members, mass in space.choices:
            shares = values[members] * odds[members]
            after[members] = mass * shares / shares.sum()
        return after

    return step
