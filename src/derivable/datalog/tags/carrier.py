"""Which numbers may be tags under a provenance, and what values they become.

A tag is a number that a user writes before `::`, gives with a tuple, or has in a column of a file. Where the provenance
is one of probabilities it is a probability. Anywhere else it is a value of the semiring's carrier as it stands: a
length under `min_plus`, a score under `max_plus`, a multiplicity under `counting`. `unit` ignores tags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.core.diagnostics import DomainError, outside
from derivable.datalog.tables.tag_columns import column_of, parts_of
from derivable.datalog.tags.random_facts import CHANCE, TAG, VALUE, Origin, RandomFacts

_OTHERS = 'for lengths use provenance="min_plus", for scores "max_plus", for weights "real"; "unit" ignores tags'


@dataclass(frozen=True)
class Carrier:
    """The numbers that a provenance takes as tags.

    name      of the provenance, as the user gave it
    semiring  None for provenances of probabilities that are no semiring
    takes_anything  whether any object is a tag
    numbers_all  whether each fact is a random one, those without tags too, so that proofs show which they use
    """

    name: str
    semiring: Semiring | None
    numbers_all: bool = False
    takes_anything: bool = False

    @property
    def is_early(self) -> bool:
        """Whether it says how facts are loaded."""
        return self.numbers_all or self.takes_anything

    @property
    def has_probabilities(self) -> bool:
        """Whether tags are numbers in [0, 1]."""
        record = self.semiring
        if record is None:
            return not self.takes_anything
        return record.is_scalar and record.fact is None and record.domains == ((0.0, 1.0),)

    @property
    def drops_zero(self) -> bool:
        """Whether a fact with the tag 0 is not there: not so where tags are ignored, and under `min_plus`."""
        record = self.semiring
        if self.has_probabilities:
            return True
        if record is None or record is boolean or not record.is_scalar:
            return False
        facts = RandomFacts([0.0], kinds=bytearray([TAG]))
        return bool(fact_values(record, facts, np.zeros(1, np.int64))[0] == record.zero)

    def check(self, numbers: np.ndarray, kinds: np.ndarray, first: int, origin: Origin) -> None:
        """Raise DomainError, with its origin, for a tag [fact] that is none; `first` is the first fact's variable."""
        if self.semiring is boolean or self.takes_anything:
            return
        checked = np.flatnonzero(kinds != CHANCE)
        wrong = checked[self._wrong(numbers[checked], kinds[checked], first + checked)]
        if not len(wrong):
            return
        row = int(wrong[0])
        number = float(numbers[row])
        subject, fields = origin(row)
        hint = fields.pop("hint", None)
        if self.has_probabilities:
            message = f"the tag {outside(number)} of {subject} is not a probability, which {self.name!r} needs"
            hint = hint or f"probabilities are in [0, 1]; {_OTHERS}"
        else:
            message = f"the tag {number:.10g} of {subject} is not {self._wanted}"
        raise DomainError(message, hint=hint, **fields)

    @property
    def _wanted(self) -> str:
        record = self.semiring
        assert record is not None
        if record.fact is not None or not record.is_scalar:
            return f"one from which `fact` of the semiring {self.name!r} makes a value"
        low, high = record.domains[0]
        if record.is_exact:
            return f"a value of the semiring {self.name!r}: integers from {low:g} to {high:g}, or a probability"
        return f"a value of the semiring {self.name!r}, whose domain is {low:g} to {high:g}"

    def _wrong(self, numbers: np.ndarray, kinds: np.ndarray, variables: np.ndarray) -> np.ndarray:
        """[fact] bool"""
        record = self.semiring
        if self.has_probabilities:
            return ~((numbers >= 0) & (numbers <= 1))
        assert record is not None
        if record.is_scalar and record.carrier == "bool":
            return np.isnan(numbers)
        if record.is_exact:
            low, high = record.domains[0]
            is_value = (numbers == np.floor(numbers)) & np.isfinite(numbers) & (numbers >= low) & (numbers <= high)
            is_neutral = (numbers == record.zero) | (numbers == record.one)
            is_chance = (numbers > 0) & (numbers < 1) & (kinds == TAG)
            is_tag = (kinds == TAG) & np.array(record.fact is not None)
            return ~(is_value | is_neutral | is_chance | is_tag)
        typed = record.typed("float64")
        if typed.fact is None:
            return np.zeros(len(numbers), bool)
        with np.errstate(all="ignore"):
            parts = list(typed.fact.apply((numbers,), (variables,)))
        if record.is_scalar:
            parts[0] = np.where(kinds == VALUE, numbers, parts[0])
        # The scalars of a nest have domains for the laws alone: theirs are not closed under its operations.
        everything = ((-np.inf, np.inf),) * len(parts)
        fine = np.ones(len(numbers), bool)
        for part, (low, high) in zip(parts, record.domains if record.is_scalar else everything):
            fine &= (part >= low) & (part <= high)
        if record.is_scalar:
            fine |= (parts[0] == record.zero) | (parts[0] == record.one)
        return ~fine


def fact_values(semiring: Semiring, facts: RandomFacts, variables: np.ndarray) -> Any:
    """The values of random facts, a column [fact] of tags (`tag_columns`).

    Raises UnsupportedError if the semiring does not say what a fact is.
    """
    numbers = np.asarray(facts.probabilities, np.float64)[variables]
    return tag_values(semiring, numbers, facts.kinds_of(variables), variables)


def tag_values(semiring: Semiring, numbers: np.ndarray, kinds: np.ndarray, variables: np.ndarray) -> Any:
    """The values of random facts of these numbers and kinds, -1 where nothing says which variable it is."""
    if semiring.is_exact:
        return _integers(semiring, numbers, kinds, variables)
    typed = semiring.typed("float64")
    with np.errstate(divide="ignore", invalid="ignore"):
        column: Any = column_of(typed.require_fact().apply((numbers,), (variables,)))
    if typed.from_probability is not None and (made := kinds == CHANCE).any():
        with np.errstate(divide="ignore"):
            values = column_of(typed.from_probability.apply((numbers[made],)))
        for part, new in zip(parts_of(column), parts_of(values)):
            part[made] = new
    if semiring.is_scalar and (is_value := kinds == VALUE).any():
        from derivable.tensor.values.values import elements

        column[is_value] = elements(numbers[is_value], semiring, "the facts")
    return column


def _integers(semiring: Semiring, numbers: np.ndarray, kinds: np.ndarray, variables: np.ndarray) -> np.ndarray:
    """Exact integers: a fraction between 0 and 1 is a probability, and counts 1."""
    objects = np.empty(len(numbers), object)
    for row, (number, kind, variable) in enumerate(zip(numbers.tolist(), kinds.tolist(), variables.tolist())):
        if kind != VALUE and semiring.fact is not None:
            objects[row] = semiring.fact(number, variable)
        elif kind == CHANCE and semiring.from_probability is not None:
            objects[row] = semiring.from_probability(number)
        elif kind == CHANCE or 0.0 < number < 1.0:
            objects[row] = 1 if number > 0 else semiring.zero
        else:
            objects[row] = int(number)
    return objects
