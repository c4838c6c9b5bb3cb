"""What a shortcut is: a recursion of a known form that is solved in another way than round by round."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol, Self

from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.statistics import Statistics
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import Algebra


class Run(Protocol):
    """What a shortcut knows of the run that a recursion is part of, which is a `run.execute.Executor`.

    pending  relation -> its candidates with tags, of strata with tags
    """

    ram: m.Ram
    algebra: Algebra
    tables: dict[str, Table]
    complete: set[str]
    statistics: Statistics
    counts: dict[int, int] | None
    store_states: dict[int, Any]
    pending: dict[str, Any]
    stratum_effort: list[Any]

    @property
    def watch(self) -> Any: ...
    @property
    def cuts(self) -> Any: ...
    def stratum(self, number: int) -> m.Stratum: ...
    def instructions(self, number: int, part: Any, may_part: bool = False) -> tuple[Any, ...]: ...
    def effort(self, instruction: Any) -> Any: ...
    def credit(self, effort: Any, rows: int) -> None: ...
    def part(self, instruction: Any) -> Table | None: ...
    def stored(self, store: m.Store) -> Iterator[tuple[list, int, Any]]: ...
    def plain_loop(self, number: int, is_first: bool, loop: tuple[m.Store, ...] | None = None) -> None: ...


class Shortcut(ABC):
    """A recursion that may be solved in a known way. Its tuples and their tags are those of its rules.

    name  as routes have it, "shortcut NAME"
    of    what the recursion has: "rows" alone, rows with "tags", or the "values" of lattices

    Small runs go through no Python between rounds. Before a recursion they ask whether it pays where both columns of
    `symmetric` have one sum, and they repeat `replacement`; one for which it always pays they leave.
    """

    name: ClassVar[str]
    of: ClassVar[str] = "rows"
    # A relation of pairs that it pays for only if it has them in both directions.
    symmetric = ""
    # What is repeated instead of the rules, and the relation that reads there: what that of the rules was before.
    replacement: tuple[m.Store, str] | None = None

    @classmethod
    @abstractmethod
    def matches(cls, run: Run, number: int, loop: tuple[m.Store, ...]) -> Self | None:
        """The recursion of a stratum if it has the form, by its rules alone; `loop` is what it is to repeat."""

    @abstractmethod
    def pays(self) -> bool:
        """Whether to solve it now, between two rounds, or before the first one."""

    @abstractmethod
    def solve(self) -> bool:
        """Solve it; false if some rows have to be propagated still."""

    @property
    def rows_left(self) -> float:
        """How many more rows it finds round by round before it is worth asking again."""
        return math.inf

    @classmethod
    def always_pays(cls, ram: m.Ram, number: int) -> bool:
        """Whether it pays for the recursion of a stratum whatever its rows are."""
        return False

    @classmethod
    def starts_over(cls, run: Run, number: int) -> str | None:
        """Why a stratum that it has solved is solved again when there are more facts; None if its rules go on."""
        return None

    @classmethod
    def route(cls) -> str:
        return f"shortcut {cls.name}"


def count_round(run: Run, number: int) -> Any:
    """Count what a shortcut does as one more round of a stratum, whose effort is returned."""
    effort = run.stratum_effort[number]
    run.watch.begin_round(number, effort.rounds)
    effort.rounds += 1
    return effort
