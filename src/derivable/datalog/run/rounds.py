"""The rounds of a recursive stratum: which of its rules read what the last round derived."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m


class Rounds:
    """What to run in each round, and which relations to look at after it.

    A relation is looked at again after a round that wrote to it or read its recent rows: looking at all, and running
    all instructions, would cost the square of the rules where news goes through them one by one.

    rows  recent ones of the round
    """

    def __init__(self, relations: tuple[str, ...], loop: tuple[m.Store, ...]):
        self.relations, self.rows = relations, 0
        self._known: dict[tuple[str, ...], tuple[list[m.Store], tuple[str, ...]]] = {}
        self.change(loop)

    def change(self, loop: tuple[m.Store, ...]) -> None:
        """Go on with these instructions: the same rules in the same order."""
        self._known.clear()
        self.loop = loop
        self._readers: dict[str, list[int]] = {}
        for index, instruction in enumerate(loop):
            self._readers.setdefault(m.recent_relation(instruction.query), []).append(index)

    def run(
        self, take_news: Callable[[str], int], begins: Callable[[], bool]
    ) -> Iterator[tuple[list[m.Store], Iterable[str]]]:
        """For each round the instructions that read recent rows, and the relations to look at next.

        `take_news(relation)` makes the rows that the last round derived the recent ones, and returns how many there
        are. `begins()` comes before each round, may change its instructions, and says whether it is to run.
        """
        self.look_at_all()
        while (rows := {name: count for name in self.active if (count := take_news(name))}) and begins():
            news, self.rows = tuple(rows), sum(rows.values())
            step = self._known.get(news)
            if step is None:
                if len(self._known) == policy().most_plans:
                    self._known.clear()
                step = self._known[news] = self._of(news)
            self.active = step[1]
            yield step

    def look_at_all(self) -> None:
        """Any relation may have news, as more than the instructions of a round ran."""
        self.active: Iterable[str] = self.relations

    def _of(self, news: tuple[str, ...]) -> tuple[list[m.Store], tuple[str, ...]]:
        indexes = sorted(index for name in news for index in self._readers.get(name, ()))
        instructions = [self.loop[index] for index in indexes]
        return instructions, tuple(dict.fromkeys([*news, *(i.relation for i in instructions)]))
