"""The derivations of a ground program in a semiring, as an engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.bridge.engines import Chain, Elementwise
from derivable.bridge.protocol import Engine
from derivable.circuit.fold.engine import GraphFold
from derivable.circuit.fold.fixpoint import FixpointFold
from derivable.circuit.fold.log_values import LogValues
from derivable.datalog.exact.ground_program import GroundProgram
from derivable.datalog.tags.random_facts import CHANCE


def tags_of_chances(numbers: np.ndarray, kinds: np.ndarray, semiring: Semiring) -> np.ndarray:
    """Values [fact] of a semiring: probabilities that were computed become such, whatever the tags of the inputs are.

    numbers, kinds  [fact] of random facts, see `RandomFacts`
    """
    found = np.array(numbers, np.float64)
    made = kinds == CHANCE
    if (of_probability := semiring.typed().from_probability) is not None and made.any():
        with np.errstate(divide="ignore"):
            (found[made],) = of_probability.apply((found[made],))
    return found


def with_chances(ground: GroundProgram, semiring: Semiring) -> GroundProgram:
    """The program with values of the semiring for the facts whose probabilities are computed."""
    fixed = tags_of_chances(ground.fixed_weights, ground.random.kinds_of(ground.fixed), semiring)
    return _int32(replace(ground, fixed_weights=fixed))


def _int32(ground: GroundProgram) -> GroundProgram:
    """Kernels are compiled for circuits, whose children are int32."""
    return replace(ground, children=ground.children.astype(np.int32))


def ground_fold(ground: GroundProgram, semiring: Semiring, precision: str) -> Engine:
    """Tags [*batch, random fact] to what is shown of the roots: facts enter by the semiring's `fact`.

    ground  as of `with_chances`
    """
    if semiring == semirings.log and not (ground.literal < 0).any():
        # Through the logarithm of a probability of 0 there is no derivative by it.
        return LogValues(ground, precision).registered()
    typed = semiring.typed(precision)
    enter = Elementwise(typed.require_fact(), [np.arange(ground.num_variables)])
    if ground.has_cycles:
        fold: Engine = FixpointFold(ground, lambda: _int32(ground.unrolled(semiring)), semiring, precision)
    else:
        fold = GraphFold(ground, semiring, False, precision)
    parts = enter, fold, Elementwise(typed.show)
    needed = [part for part in parts if not (isinstance(part, Elementwise) and part.is_identity)]
    return (needed[0] if len(needed) == 1 else Chain(*needed)).registered()
