"""The instances of a rule that derive one tuple: its body, evaluated for the words of its head.

The literals are ordered while they are evaluated: whatever only filters or computes comes as early as it can, then the
atom with the fewest rows for what is bound, as an index says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.datalog.foreign.standard import predicate_of
from derivable.datalog.reasons.model import Model
from derivable.datalog.reasons.rows import Index, Row, Rows
from derivable.datalog.reasons.scalar import Evaluate, evaluator, value_of
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.literal_order import Define, Ordering, Step, bound_terms
from derivable.datalog.values.values import word_of

Test = Callable[[list[int]], bool]


@dataclass(frozen=True)
class Instance:
    """A rule with words for its variables; `rows` are those of its positive atoms, by their positions in the body."""

    body: Body
    words: tuple[int, ...]
    rows: tuple[tuple[int, Row], ...]


@dataclass(frozen=True)
class _Access:
    """How the rows of an atom are looked for once some of its terms are bound.

    key     (column, slot of a word, the word if it is a constant)
    binds   (column, slot) of the variables that it binds; checks: those that it binds twice
    most    how many rows are looked at: one where no other literal has the variables, and no row differs from another
    """

    rows: Rows
    columns: tuple[int, ...]
    key: tuple[tuple[int, int], ...]
    binds: tuple[tuple[int, int], ...]
    checks: tuple[tuple[int, int], ...]
    most: int | None

    def range(self, words: Sequence[int]) -> tuple[Index | None, int, int]:
        """From where to where the rows are that fit, in the order of an index, None for that of the rows."""
        if not self.rows.size or not self.columns:
            return None, 0, self.rows.size
        key = [words[slot] if slot >= 0 else word for slot, word in self.key]
        index = self.rows.index(self.columns, key)
        return index, *index.range_of(key)

    def numbers(self, index: Index | None, start: int, stop: int) -> Sequence[int]:
        """The numbers of the rows of a range, as far as they are looked at."""
        if self.most is not None:
            stop = min(stop, start + self.most)
        return range(start, stop) if index is None else index.numbers(start, stop)


class _State:
    """What is done when some literals are: the tests that follow at once, and the literals that may come next.

    tests   what filters and computes
    branch  (position, step) of a foreign predicate, or of an equation that is solved late, that comes next
    atoms   the atoms of which one comes next, if there is no branch
    """

    def __init__(self, body: Body, ordering: Ordering, before: int, bound: set[str]):
        """before, bound: the steps of which the tests are those behind, and the variables that are bound by then."""
        self.body, self.ordering = body, ordering
        self.branch: tuple[int, Step] | None = None
        while (chosen := ordering.next_cheap()) is not None:
            if isinstance(chosen[1], r.Generate) and not chosen[1].negated:
                self.branch = chosen
                break
            ordering.take(*chosen)
        self.tests: list[Test] = []
        for step in ordering.steps[before:]:
            self.tests += body.tests_of(step, bound)
            bound = bound | ({step.variable.name} if isinstance(step, Define) else r.names(step))
        literals = ordering.remaining
        self.atoms: dict[int, _Access] = {}
        if self.branch is None:
            self.atoms = {p: body.access(p, ordering.bound) for p, node in literals.items() if isinstance(node, r.Atom)}
        if literals and not self.atoms and self.branch is None:
            self.branch = ordering.next_generator() or ordering.next_late()
            if self.branch is None:
                self.tests.append(lambda words: False)
        self.is_last = not literals
        self.after: dict[int, _State] = {}

    def next(self, position: int, step: Step) -> _State:
        """What is done after a step."""
        state = self.after.get(position)
        if state is None:
            ordering, bound = self.ordering.copy(), set(self.ordering.bound)
            ordering.take(position, step)
            before = len(ordering.steps) - isinstance(step, Define)
            state = _State(self.body, ordering, before, bound if isinstance(step, Define) else set(ordering.bound))
            self.after[position] = state
        return state


class Body:
    """A clause whose instances are looked for.

    coin  its probability, None if it is certain
    """

    def __init__(self, clause: r.Clause, model: Model, columns: tuple[int, ...] | None = None):
        """columns: those of the head that are bound; None for all."""
        self.clause, self.model = clause, model
        coins = [literal for literal in clause.body if isinstance(literal, r.RuleProbability)]
        self.coin = coins[0] if coins else None
        terms, equations = bound_terms(clause, tuple(range(len(clause.terms))) if columns is None else columns)
        self.literals = [node for node in clause.body if not isinstance(node, r.RuleProbability)]
        whole = [*self.literals, *equations]
        names = dict.fromkeys(v.name for node in (*terms, *whole, *clause.terms) for v in r.variables(node))
        self.slots = {name: slot for slot, name in enumerate(names)}
        self.heads: list[tuple[int, int | None]] = []
        for term in terms:
            if isinstance(term, r.Var):
                self.heads.append((self.slots[term.name], None))
            else:
                self.heads.append((-1, word_of(term.value, term.type, model.symbols)))
        self.whole = whole
        self.types = {v.name: v.type for node in (*terms, *whole, *clause.terms) for v in r.variables(node)}
        ordering = Ordering(whole)
        ordering.bind(term.name for term in terms if isinstance(term, r.Var))
        self.first = _State(self, ordering, 0, set(ordering.bound))
        self._weight: Evaluate | None = None

    def evaluator(self, e: r.Expr) -> Evaluate:
        return evaluator(e, self.slots, self.model.symbols)

    def values(self, terms: Iterable[r.Expr], words: Sequence[int]) -> Row:
        """The words of the terms that have a value."""
        return tuple([word for term in terms if (word := self.evaluator(term)(words)) is not None])

    def head_words(self, head: Row) -> list[int] | None:
        """The words of the variables as far as a head says them; None if it is none of this clause."""
        words, seen = [0] * len(self.slots), set()
        for word, (slot, constant) in zip(head, self.heads):
            if slot < 0:
                if word != constant:
                    return None
            elif slot in seen:
                if words[slot] != word:
                    return None
            else:
                seen.add(slot)
                words[slot] = word
        return words

    def instances(self, head: Row) -> Iterator[Instance]:
        """The instances that derive a tuple."""
        words = self.head_words(head)
        if words is not None:
            yield from self._from(self.first, words, {})

    def atoms_of(self, instance: Instance) -> list[tuple[str, Row]]:
        """The relations and rows of the positive atoms of an instance."""
        return [(self.literals[position].relation, row) for position, row in instance.rows]  # type: ignore[union-attr]

    def _from(self, state: _State, words: list[int], rows: dict[int, Row]) -> Iterator[Instance]:
        for test in state.tests:
            if not test(words):
                return
        if state.is_last:
            yield Instance(self, tuple(words), tuple(sorted(rows.items())))
            return
        if state.branch is not None:
            yield from self._branches(*state.branch, state, words, rows)
            return
        chosen, first, last, access, order = -1, 0, 0, None, None
        for position, each in state.atoms.items():
            index, start, stop = each.range(words)
            if start == stop:
                return
            if access is None or stop - start < last - first:
                chosen, first, last, access, order = position, start, stop, each, index
        assert access is not None
        after = state.next(chosen, self.whole[chosen])
        for number in access.numbers(order, first, last):
            row = access.rows.row(number)
            for column, slot in access.binds:
                words[slot] = row[column]
            if all(row[column] == words[slot] for column, slot in access.checks):
                rows[chosen] = row
                yield from self._from(after, words, rows)

    def _branches(
        self, position: int, step: Step, state: _State, words: list[int], rows: dict[int, Row]
    ) -> Iterator[Instance]:
        """The instances for each answer of a foreign predicate, or after a late equation."""
        after = state.next(position, step)
        if not isinstance(step, r.Generate):
            yield from self._from(after, words, rows)
            return
        bound = state.ordering.bound
        for answer, _ in self.answers(step, words, bound):
            made = list(words)
            if self.fits(step, answer, made, set(bound)):
                yield from self._from(after, made, rows)

    def elsewhere(self, position: int) -> set[str]:
        """The variables of all but one literal, and of the head."""
        nodes = [node for i, node in enumerate(self.whole) if i != position]
        return {v.name for node in (*nodes, self.coin, *self.clause.terms) for v in r.variables(node)}

    def of_rows(self, head: Row, rows: Iterable[Row]) -> Instance:
        """The instance for a tuple and the rows of its positive atoms, which bind all variables."""
        words = self.head_words(head)
        assert words is not None
        positions = [position for position, literal in enumerate(self.literals) if isinstance(literal, r.Atom)]
        placed = tuple(zip(positions, rows))
        for position, row in placed:
            for term, word in zip(self.literals[position].terms, row):  # type: ignore[union-attr]
                if isinstance(term, r.Var):
                    words[self.slots[term.name]] = word
        return Instance(self, tuple(words), placed)

    def access(self, position: int, bound: set[str]) -> _Access:
        """How the rows of an atom are looked for."""
        atom = self.whole[position]
        assert isinstance(atom, r.Atom)
        columns, key, binds, checks = [], [], [], []
        seen: dict[str, int] = {}
        for column, term in enumerate(atom.terms):
            match term:
                case r.Const(value=value, type=t):
                    columns.append(column)
                    key.append((-1, word_of(value, t, self.model.symbols)))
                case r.Var(name=name) if name in bound:
                    columns.append(column)
                    key.append((self.slots[name], 0))
                case r.Var(name=name):
                    (checks if name in seen else binds).append((column, self.slots[name]))
                    seen[name] = column
        is_any = not checks and not (seen.keys() & self.elsewhere(position)) and self.model.is_flat(atom.relation)
        rows = self.model.rows(atom.relation)
        return _Access(rows, tuple(columns), tuple(key), tuple(binds), tuple(checks), 1 if is_any else None)

    def tests_of(self, step: Step, bound: set[str]) -> list[Test]:
        """What a step that only filters or computes does to the words, and whether the row stays."""
        match step:
            case Define(variable=variable, expression=expression):
                slot, value = self.slots[variable.name], self.evaluator(expression)

                def define(words: list[int]) -> bool:
                    word = value(words)
                    if word is None:
                        return False
                    words[slot] = word
                    return True

                return [define]
            case r.Filter(condition=condition):
                holds = self.evaluator(condition)
                return [lambda words: holds(words) == 1]
            case r.Negated(relation=relation, terms=terms):
                values, model = [self.evaluator(t) for t in terms], self.model
                return [lambda words: not model.is_certain(relation, tuple([v(words) for v in values]))]  # type: ignore
            case r.Generate(negated=True):
                return [lambda words: not self._excludes(step, words, bound)]
        raise TypeError(f"no step that only filters: {step!r}")

    def answers(
        self, step: r.Generate, words: Sequence[int], bound: set[str]
    ) -> Iterator[tuple[Sequence[int | None], float | None]]:
        """The rows of outputs of a foreign predicate, and their probabilities."""
        inputs = self.values(step.inputs, words)
        if len(inputs) < len(step.inputs):
            return
        closed = predicate_of(step.predicate).closed
        if closed is None:
            yield from self.model.answers(step, inputs)
            return
        (output,), t, symbols = step.outputs, step.inputs[0].type, self.model.symbols
        low, high = (value_of(word, t, symbols) for word in inputs)
        numbers: Iterable[int] = range(low, high + closed)
        if isinstance(output, r.Const) or (isinstance(output, r.Var) and output.name in bound):
            number = value_of(self.evaluator(output)(words) or 0, t, symbols)
            numbers = (number,) if number in range(low, high + closed) else ()
        yield from (((word_of(number, t, symbols),), None) for number in numbers)

    def _excludes(self, step: r.Generate, words: list[int], bound: set[str]) -> bool:
        """Whether a negated predicate has an answer that is there in every world."""
        return any(
            (chance is None or self.model.is_boolean) and self.fits(step, answer, list(words), set(bound))
            for answer, chance in self.answers(step, words, bound)
        )

    def fits(self, step: r.Generate, answer: Sequence[int | None], words: list[int], bound: set[str]) -> bool:
        """Whether an answer agrees with what is bound; it binds the rest."""
        for term, word in zip(step.outputs, answer):
            match term:
                case r.Const(value=value, type=t) if word_of(value, t, self.model.symbols) != word:
                    return False
                case r.Var(name=name) if name in bound and words[self.slots[name]] != word:
                    return False
                case r.Var(name=name):
                    assert word is not None
                    words[self.slots[name]] = word
                    bound.add(name)
        return True

    def chance(self, words: Sequence[int]) -> tuple[tuple[Any, ...], float] | None:
        """The key of an instance's coin, and its probability."""
        if self.coin is None:
            return None
        if self._weight is None:
            self._weight = self.evaluator(self.coin.probability)
            self._key = [self.evaluator(e) for e in self.coin.key]
        word = self._weight(words)
        value = float(np.array([word or 0], np.int64).view(np.float64)[0])
        if self.coin.probability.type.family != "float":
            value = float(word or 0)
        return (self.coin.name, *(e(words) for e in self._key)), value
