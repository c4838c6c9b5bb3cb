"""Rules with probabilities: each ground instance of such a rule is a separate random fact.

An instance is a rule with values for all variables that its body binds, so `0.3::h(x) = e(x, y)` draws one coin for
each row of `e`, as in ProbLog and Scallop. The coin is drawn when the instance is first derived, and is known by the
rule and these values from then on: whatever derives the instance again, in a later round, from more facts or in another
order of the body, finds the same random fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from derivable.core.diagnostics import DomainError
from derivable.datalog.foreign.function import ForeignError
from derivable.datalog.ram import nodes as m
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.random_facts import KINDS, Kind, RandomFacts, Tied
from derivable.datalog.tags.tags import ColumnTags

if TYPE_CHECKING:
    pass


class Coins:
    """The random facts of the rules' ground instances that a run has come to.

    known    name of a coin -> its instances, and the random fact [instance] of each
    factors  (number, kind) of a rule's tag -> a table of one row with the tag of such a fact
    """

    def __init__(self, random: RandomFacts):
        self.random = random
        self.known: dict[str, tuple[Table, np.ndarray]] = {}
        self.factors: dict[tuple[float, Kind], Table] = {}

    def copy(self, random: RandomFacts) -> Coins:
        """The same facts, for random facts that are a copy."""
        made = Coins(random)
        made.known = {name: (table.fork(), facts) for name, (table, facts) in self.known.items()}
        return made

    def factor(self, coin: m.RuleProbability, number: float, tags: ColumnTags) -> Table | None:
        """A table of one row with the tag of a fact of this number; None where tags say which fact it is.

        Raises ForeignError for a number that the provenance does not take.
        """
        key = number, coin.kind
        if key not in self.factors:
            numbers = np.array([number])
            self.check(coin, numbers)
            made = tags.anonymous(numbers, coin.kind)
            if made is None:
                return None
            table = self.factors[key] = Table("", (), tags.empty)
            table.insert((), 1)
            table.tags[:1] = made
        return self.factors[key]

    def check(self, coin: m.RuleProbability, numbers: np.ndarray) -> None:
        """Raise ForeignError for a number [row] that the provenance does not take as a tag."""
        carrier = self.random.carrier
        if carrier is None or coin.kind == "chance":
            return
        kinds = np.full(len(numbers), KINDS[coin.kind], np.uint8)
        try:
            carrier.check(numbers, kinds, 0, lambda number: ("a rule", {}))
        except DomainError as error:
            error = ForeignError(error.message, "::", hint=error.hint)
            error.span = coin.span
            raise error from None

    def drops_zero(self, coin: m.RuleProbability) -> bool:
        """Whether a row whose coin has the number 0 is not there, as it is where numbers are probabilities."""
        carrier = self.random.carrier
        return carrier is None or coin.kind == "chance" or carrier.has_probabilities

    def variables(
        self, coin: m.RuleProbability, columns: Sequence[np.ndarray], probabilities: np.ndarray
    ) -> np.ndarray:
        """The random facts [row] of the instances with these columns of words."""
        count = len(probabilities)
        if coin.name not in self.known:
            table = Table(coin.name, [e.type for e in coin.key])
            table.row_set.use_hash(table)
            self.known[coin.name] = table, np.empty(0, np.int64)
        table, facts = self.known[coin.name]
        before = table.size
        # Of a table without columns all rows are one.
        rows = table.insert(columns, count)
        if table.size > before:
            first = np.empty(table.size - before, np.int64)
            fresh = np.flatnonzero(rows >= before)[::-1]
            first[rows[fresh] - before] = fresh
            words = [column[first] for column in columns]
            facts = np.concatenate([facts, self._added(coin, probabilities[first], words)])
            self.known[coin.name] = table, facts
        return facts[rows] + coin.option

    def _added(self, coin: m.RuleProbability, numbers: np.ndarray, words: Sequence[np.ndarray]) -> np.ndarray:
        """Random facts of these numbers, of instances with these columns of words; of the instances of a choice of
        heads, those of the first head."""
        self.check(coin, numbers)
        if not coin.options:
            made = self.random.add(numbers, coin.kind, lambda number: ("a rule", {}))
            self._tie(coin, coin.parameter, 0, made, words)
            return made
        shares = np.array([share for share, _ in coin.options])
        made = np.array([self.random.add_choice(shares)[0] for _ in numbers], np.int64)
        for option, (_, parameter) in enumerate(coin.options):
            self._tie(coin, parameter, option, made + option, words)
        return made

    def _tie(
        self,
        coin: m.RuleProbability,
        parameter: int | None,
        option: int,
        variables: np.ndarray,
        words: Sequence[np.ndarray],
    ) -> None:
        if parameter is not None:
            by = coin.by[option] if coin.by else ()
            types = tuple(coin.key[position].type for position in by)
            self.random.tied.append(Tied(parameter, variables, tuple(words[position] for position in by), types))
