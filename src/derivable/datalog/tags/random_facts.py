"""What random facts look like to a provenance."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from derivable.core.graph import offsets_of

if TYPE_CHECKING:
    from derivable.datalog.tags.carrier import Carrier
    from derivable.datalog.values.values import ValueType

Kind = Literal["chance", "tag", "value"]
# The numbers of kinds.
CHANCE, TAG, VALUE = range(3)
KINDS: dict[Kind, int] = {"chance": CHANCE, "tag": TAG, "value": VALUE}
# (subject of a sentence, fields of an error that say where it is) of the fact of that number, from 0.
Origin = Callable[[int], tuple[str, dict[str, Any]]]


def anonymous(number: int) -> tuple[str, dict[str, Any]]:
    """The origin of facts that nothing is known of."""
    return "a fact", {}


@dataclass(frozen=True, eq=False)
class Tied:
    """Random facts whose probability is one tunable one, or one for each of some values.

    parameter  its number
    words      [column] words [variable] of the values
    types      [column]
    """

    parameter: int
    variables: np.ndarray
    words: tuple[np.ndarray, ...] = ()
    types: tuple[ValueType, ...] = ()


@dataclass
class RandomFacts:
    """The random input facts of a run, as variables 0, 1, ...

    probabilities  the number of each variable; what it means is said by its kind:
    kinds          [variable] "chance", a probability that an aggregate or a soft comparison has computed; "tag", the
                   number that a user has written before `::` or passed with a tuple; "value", an element of the
                   semiring that the program runs in, as a sparse tensor has them
    groups         arrays of variables of which exactly one is true; the others are independent
    seed           of samples that aggregates draw
    carrier        what numbers the provenance takes, once that is known
    origins        (first variable, where that and the following ones come from), for messages
    objects        variable -> its tag, where a provenance takes anything as one
    nothing        the variables that stand for none of the facts of a choice
    tied           which facts have tunable probabilities
    samples        of the first variables, [variable] each, the sample of a batch that they are of, -1 for all samples
    """

    probabilities: list[float] = field(default_factory=list)
    groups: list[np.ndarray] = field(default_factory=list)
    seed: int = 0
    kinds: bytearray = field(default_factory=bytearray)
    carrier: Carrier | None = None
    origins: list[tuple[int, Origin]] = field(default_factory=list)
    objects: dict[int, Any] = field(default_factory=dict)
    samples: list[np.ndarray] = field(default_factory=list)
    nothing: list[int] = field(default_factory=list)
    tied: list[Tied] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kinds.extend(bytes(len(self.probabilities) - len(self.kinds)))

    def copy(self) -> RandomFacts:
        return replace(
            self,
            probabilities=[*self.probabilities],
            groups=[*self.groups],
            kinds=bytearray(self.kinds),
            origins=[*self.origins],
            objects=dict(self.objects),
            samples=[*self.samples],
            nothing=[*self.nothing],
            tied=[*self.tied],
        )

    def add(self, probabilities: np.ndarray, kind: Kind = "chance", origin: Origin = anonymous) -> np.ndarray:
        """Numbers of new independent variables. Raises DomainError for tags that the provenance does not take."""
        numbers = np.asarray(probabilities, np.float64)
        start = len(self.probabilities)
        if kind != "chance" and len(numbers):
            if self.carrier is not None:
                self.carrier.check(numbers, np.full(len(numbers), KINDS[kind], np.uint8), start, origin)
            self.origins.append((start, origin))
        # An interruption leaves no variable without a kind, and the next addition replaces kinds without a variable.
        self.kinds[start:] = bytes([KINDS[kind]]) * len(numbers)
        self.probabilities.extend(numbers.tolist())
        return np.arange(start, len(self.probabilities), dtype=np.int64)

    def add_objects(self, tags: Sequence[Any]) -> np.ndarray:
        """Numbers of new independent variables with these tags, for a provenance that takes anything."""
        variables = self.add(np.ones(len(tags)), "tag")
        self.objects.update(zip(variables.tolist(), tags))
        return variables

    def add_choice(
        self,
        probabilities: np.ndarray,
        is_complete: bool = False,
        kind: Kind = "chance",
        origin: Origin = anonymous,
    ) -> np.ndarray:
        """Numbers of new variables of which at most one is true.

        Unless they add up to one (or `is_complete`), one more variable stands for "none of them".
        """
        variables = self.add(probabilities, kind, origin)
        if self.carrier is not None:
            self._normalise(variables)
        rest = 1.0 - float(np.sum(probabilities))
        group = variables
        if not is_complete and rest > 1e-12:
            group = np.concatenate([variables, self.add(np.array([rest]))])
            self.nothing.append(int(group[-1]))
        self.groups.append(group)
        return variables

    def add_choices(self, probabilities: np.ndarray, starts: np.ndarray, kind: Kind, origin: Origin) -> np.ndarray:
        """`add_choice` for each part of the probabilities, before the provenance is known.

        starts  [choice + 1] where the parts begin, none of which is empty
        """
        sizes, first = np.diff(starts), len(self.probabilities)
        rests = 1.0 - np.add.reduceat(probabilities, starts[:-1])
        has_rest = rests > 1e-12
        before = np.cumsum(has_rest) - has_rest
        position = np.arange(len(probabilities)) + before.repeat(sizes)
        nothing = (starts[1:] + before)[has_rest]
        numbers = np.empty(len(probabilities) + len(nothing))
        numbers[position], numbers[nothing] = probabilities, rests[has_rest]
        kinds = np.full(len(numbers), KINDS[kind], np.uint8)
        kinds[nothing] = CHANCE
        self.origins.append((first, lambda number: origin(int(np.searchsorted(position, number)))))
        self.kinds[first:] = kinds.tobytes()
        self.probabilities.extend(numbers.tolist())
        self.nothing.extend((first + nothing).tolist())
        ends, group = starts + np.append(before, len(nothing)), np.arange(first, first + len(numbers), dtype=np.int64)
        self.groups += [group[start:stop] for start, stop in pairwise(ends.tolist())]
        return first + position

    def require(self, carrier: Carrier) -> None:
        """State the provenance. Raises DomainError for tags so far that it does not take, as `add` does from now on."""
        if self.carrier == carrier:
            return
        kinds = self.kinds_of(slice(len(self.probabilities)))
        if (kinds != CHANCE).any():
            starts = [start for start, _ in self.origins]

            def origin(number: int) -> tuple[str, dict[str, Any]]:
                start, origin = self.origins[bisect_right(starts, number) - 1]
                return origin(number - start)

            carrier.check(np.asarray(self.probabilities, np.float64), kinds, 0, origin)
        self.carrier = carrier
        if self.groups:
            numbers = np.asarray(self.probabilities, np.float64)[np.concatenate(self.groups)]
            totals = np.add.reduceat(numbers, offsets_of([*map(len, self.groups)])[:-1])
            for number in np.flatnonzero(totals > 1.0 + 1e-10).tolist():
                self._normalise(self.groups[number])

    def _normalise(self, group: np.ndarray) -> None:
        """Have the probabilities of a choice add up to one where rounding has made more of them."""
        if self.carrier is None or not self.carrier.has_probabilities or self.carrier.semiring is not None:
            return
        probabilities = [self.probabilities[variable] for variable in group]
        total = sum(probabilities)
        if total > 1.0 + 1e-9:
            for variable, probability in zip(group.tolist(), probabilities):
                self.probabilities[variable] = probability / total

    def kinds_of(self, variables: np.ndarray | slice) -> np.ndarray:
        """[variable] uint8: CHANCE, TAG or VALUE."""
        return np.array(np.frombuffer(self.kinds, np.uint8)[variables])

    def fixed(self, variables: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(number [fixed] int64, probability [fixed]) of what no input names: the facts written in the program."""
        inputs = np.concatenate([*variables.values(), np.empty(0, dtype=np.int64)])
        numbers = np.setdiff1d(np.arange(len(self.probabilities)), inputs)
        return numbers, np.asarray(self.probabilities, dtype=np.float64)[numbers]

    def group_of(self) -> np.ndarray:
        """Group number [variable] int64, -1 for independent variables."""
        owner = np.full(len(self.probabilities), -1, dtype=np.int64)
        if self.groups:
            owner[np.concatenate(self.groups)] = np.arange(len(self.groups)).repeat([*map(len, self.groups)])
        return owner
