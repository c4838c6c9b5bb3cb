"""Worlds of a program given evidence, with the names of its facts: the most probable ones, and samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from derivable.circuit.graph.builder import circuit_from_arrays
from derivable.circuit.graph.circuit import Circuit
from derivable.core import html
from derivable.core.and_or import LITERAL
from derivable.core.diagnostics import BindingError, TypeMismatchError
from derivable.core.graph import offsets_of
from derivable.core.registry import suggestion
from derivable.datalog.api.fact_names import RandomFact, fact_of, named_facts, rows_of
from derivable.datalog.exact.evidence import Conditioned, checked_evidence
from derivable.datalog.exact.exact import nodes_of_items
from derivable.datalog.exact.saved_runs import MOST_NODES, MOST_SAVED, pattern_of
from derivable.datalog.exact.unroll import acyclic, normal_form
from derivable.datalog.exact.worlds import WorldSpace
from derivable.datalog.facts.inputs import checked_facts, taken
from derivable.datalog.facts.load import known_relation
from derivable.datalog.rules.nodes import Evidence, Rules
from derivable.datalog.run.limits import Watch, checked_limits, watched

if TYPE_CHECKING:
    from derivable.datalog.api.evaluation import Evaluation
    from derivable.datalog.api.program import Program
    from derivable.datalog.tables.storage import Table

_SHOWN_WORLDS = 20
_SHOWN_FACTS = 12
_MOST_CHARACTERS = 400


class Count(NamedTuple):
    """How many of the instances of a fact or rule are expected to hold."""

    expected: float
    instances: int


class World(Mapping):
    """One world: output -> its tuples that hold there.

    probability      of the world, given the evidence
    log_probability  its logarithm, in nats
    facts            relation -> {tuple: whether the random fact holds}, in the form of evidence
    rules            {instance of a rule with a probability: whether its coin came up}
    """

    def __init__(self, worlds: Worlds, number: int):
        self._worlds, self._number = worlds, number
        self.log_probability = float(worlds.log_probabilities[number])
        self.probability = float(np.exp(self.log_probability))

    @cached_property
    def facts(self) -> dict[str, dict[tuple[Any, ...], bool]]:
        worlds: dict[str, dict[tuple[Any, ...], bool]] = {}
        for fact, holds in self._named():
            if fact.relation is not None:
                rows = worlds.setdefault(fact.relation, {})
                # A tuple that several facts state holds if one of them does.
                rows[fact.row] = rows.get(fact.row, False) or holds
        return worlds

    @cached_property
    def rules(self) -> dict[str, bool]:
        return {fact.text: holds for fact, holds in self._named() if fact.relation is None}

    def _named(self) -> list[tuple[RandomFact, bool]]:
        return list(zip(self._worlds.names, self._worlds.holds[self._number].tolist()))

    def texts(self) -> list[str]:
        """The facts that hold, those that do not after `not`, and the instances of rules likewise."""
        facts = [(fact_of(name, row).text, holds) for name, rows in self.facts.items() for row, holds in rows.items()]
        rules = [(f"({rule})", holds) for rule, holds in self.rules.items()]
        return [text if holds else f"not {text}" for text, holds in facts + rules]

    def __getitem__(self, name: str) -> list[tuple[Any, ...]]:
        tuples, holds = self._worlds.tuples(name)
        return [tuples[i] for i in np.flatnonzero(holds[self._number]).tolist()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._worlds.outputs)

    def __len__(self) -> int:
        return len(self._worlds.outputs)

    def __repr__(self) -> str:
        shown = ", ".join(self.texts())
        return f"{self.probability:.6g}: {shown[:_MOST_CHARACTERS]}{'…' * (len(shown) > _MOST_CHARACTERS)}"


class Worlds(Sequence):
    """Worlds of a program given evidence, the most probable first, or samples in the order in which they were drawn.

    names              the random facts that matter: those that an output or the evidence depends on
    holds              bool [world, fact]
    log_probabilities  [world] given the evidence
    log_evidence       the logarithm of the probability of the evidence
    outputs            the outputs that `tuples` and the worlds know
    """

    def __init__(
        self,
        names: Sequence[RandomFact],
        holds: np.ndarray,
        log_probabilities: np.ndarray,
        log_evidence: float,
        derived: _Derived | None = None,
        worlds: np.ndarray | None = None,
    ):
        self.names, self.holds = tuple(names), holds
        self.log_probabilities, self.log_evidence = log_probabilities, log_evidence
        self._derived, self._worlds = derived, worlds
        self._tuples: dict[str, tuple[list[tuple[Any, ...]], np.ndarray]] = {}
        self.outputs = () if derived is None else tuple(derived.tables)

    def tuples(self, output: str) -> tuple[list[tuple[Any, ...]], np.ndarray]:
        """(the tuples of an output that may hold, bool [world, tuple] whether each one does)."""
        if self._derived is None or output not in self.outputs:
            hint = suggestion(output, self.outputs, f"the outputs are {', '.join(self.outputs)}")
            raise BindingError(f"the worlds have no output `{output}`", hint=hint)
        if output not in self._tuples:
            tuples, columns = self._derived.tuples(output)
            self._tuples[output] = tuples, self._holds[:, columns]
        return self._tuples[output]

    @cached_property
    def _holds(self) -> np.ndarray:
        assert self._derived is not None
        assert self._worlds is not None
        return self._derived.holds(self._worlds)

    def __len__(self) -> int:
        return len(self.holds)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [World(self, i) for i in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(f"there are {len(self)} worlds, and none has number {number}")
        return World(self, number % len(self))

    def __repr__(self) -> str:
        lines = [repr(world) for world in self[:_SHOWN_WORLDS]]
        rest = len(self) - _SHOWN_WORLDS
        return "\n".join([*lines, *([f"… {rest:,} more worlds"] if rest > 0 else [])]) or "no worlds"

    def _repr_html_(self) -> str:
        """A row for each world, a column for each fact, for notebooks."""
        names = [fact.text for fact in self.names[:_SHOWN_FACTS]]
        rows = [
            [f"{world.probability:.6g}", *("✓" if holds else "" for holds in self.holds[i, :_SHOWN_FACTS].tolist())]
            for i, world in enumerate(self[:_SHOWN_WORLDS])
        ]
        rest = len(self) - _SHOWN_WORLDS, len(self.names) - _SHOWN_FACTS
        more = [f"{count:,} more {what}" for count, what in zip(rest, ("worlds", "facts")) if count > 0]
        return html.table(("probability", *names), rows) + (f"<div>… {' and '.join(more)}</div>" if more else "")


class _Derived:
    """What holds in worlds: the derivations of outputs, to be evaluated."""

    def __init__(self, tables: Mapping[str, Table], circuit: Circuit, symbols: Any):
        self.tables, self.circuit, self.symbols = tables, circuit, symbols

    def holds(self, worlds: np.ndarray) -> np.ndarray:
        """bool [world, tuple of all outputs]"""
        return np.asarray(self.circuit.evaluate(worlds, ~worlds, "boolean"), bool).reshape(len(worlds), -1)

    def tuples(self, output: str) -> tuple[list[tuple[Any, ...]], slice]:
        """The tuples of an output, and their positions among those of all."""
        ends, table = offsets_of([table.size for table in self.tables.values()]), self.tables[output]
        number = list(self.tables).index(output)
        words = [table.column(c) for c in range(len(table.types))]
        rows = rows_of(words, table.types, self.symbols, table.size)
        return rows, slice(*ends[number : number + 2].tolist())


@dataclass(frozen=True, eq=False)
class Question:
    """A program grounded under evidence, of which worlds are wanted.

    query    the tuples of which worlds are to say alone whether they hold; none for all random facts that matter
    matters  bool [variable] whether an output or the evidence depends on a random fact
    made     probabilities of the random facts that rules have made, behind those of the facts
    """

    rules: Rules
    evaluation: Evaluation
    query: tuple[Evidence, ...]
    matters: np.ndarray
    made: Sequence[float]
    evidence: Conditioned
    derived: _Derived

    @staticmethod
    def of(rules: Rules, evaluation: Evaluation, query: tuple[Evidence, ...], watch: Watch) -> Question:
        random = evaluation.facts.random
        num_facts = len(random.probabilities)
        grounding = evaluation.ground(watch)
        tables = {} if query else {name: evaluation.tables[name] for name in rules.outputs}
        nodes = np.concatenate([np.empty(0, np.int64), *map(_nodes, tables.values())])
        items = (*evaluation.evidence, *query)
        observed = nodes_of_items(grounding, evaluation.ram, items)
        form = normal_form(acyclic(grounding.graph.with_roots(np.concatenate([nodes, observed])), watch))
        count = len(random.probabilities)
        matters = np.zeros(count, bool)
        matters[np.abs(form.literal[form.kind == LITERAL].astype(np.int64)) - 1] = True
        for group in random.groups:
            matters[group] |= matters[group].any()
        circuit = circuit_from_arrays(*form.with_roots(form.roots[: len(nodes)]).arrays, count)
        evidence = Conditioned.of(grounding, np.empty(0, np.int64), evaluation.ram, items, watch)
        derived = _Derived(tables, circuit, evaluation.facts.symbols)
        return Question(rules, evaluation, query, matters, random.probabilities[num_facts:], evidence, derived)

    def answered(self, probabilities: Sequence[float], observed: tuple[Evidence, ...], watch: Watch) -> Answers:
        """Under these probabilities of the facts, and these observations of the same tuples."""
        evidence = replace(self.evidence, items=(*observed, *self.query))
        random = self.evaluation.facts.random
        all_probabilities = np.array([*probabilities, *self.made], np.float64)
        return Answers(
            self, WorldSpace(evidence, all_probabilities, random.groups, self.matters, len(self.query)), watch
        )

    @cached_property
    def names(self) -> dict[int, RandomFact]:
        """The random facts that matter, by their variables."""
        return named_facts(self.rules, self.evaluation, self.matters)


class Answers:
    """What a question is answered with."""

    def __init__(self, question: Question, space: WorldSpace, watch: Watch):
        self.question, self.space, self.watch = question, space, watch
        self.log_evidence = space.log_evidence()

    def most_probable(self, k: int) -> Worlds:
        query, worlds = self.question.query, []
        for one in islice(self.space.assignments() if query else self.space.most_probable(), k):
            self.watch.remaining()
            worlds.append(one)
        if query:
            names = [fact_of(item.relation, item.row) for item in query]
            holds = np.array([values for values, _ in worlds], bool).reshape(-1, len(names))
            logs = np.array([log for _, log in worlds]) - self.log_evidence
            return Worlds(names, holds, logs, self.log_evidence)
        holds = np.array(worlds, bool).reshape(len(worlds), len(self.space.matters))
        # The sums of the search differ in the last bits.
        return self._named(holds[np.argsort(-self.space.log_probabilities(holds), kind="stable")])

    def sample(self, count: int, seed: int) -> Worlds:
        return self._named(self.space.sample(count, seed))

    def expected_counts(self) -> dict[str, Count]:
        expected = self.space.expected()
        counts: dict[str, Count] = {}
        for variable, fact in self.question.names.items():
            before = counts.get(fact.written, Count(0.0, 0))
            counts[fact.written] = Count(before.expected + float(expected[variable]), before.instances + 1)
        return counts

    def _named(self, worlds: np.ndarray) -> Worlds:
        logs = self.space.log_probabilities(worlds) - self.log_evidence
        names = self.question.names
        return Worlds(
            list(names.values()), worlds[:, list(names)], logs, self.log_evidence, self.question.derived, worlds
        )


def answers(rules: Rules, evaluation: Evaluation, query: tuple[Evidence, ...], watch: Watch) -> Answers:
    """The answers to a question about an exact run that has not begun. Those that observe the same tuples of the same
    facts, in whichever way and of whichever probabilities, ground and compile once."""
    ram, probabilities = evaluation.ram, [*evaluation.facts.random.probabilities]
    pattern = pattern_of(ram, evaluation.facts, watch.limits, (*evaluation.evidence, *query))
    key, known = (len(query), pattern), ram.plans.setdefault("questions", {})
    question = None if pattern is None else known.get(key)
    if question is None:
        question = Question.of(rules, evaluation, query, watch)
        if pattern is not None and question.evidence.circuit.num_nodes <= MOST_NODES // MOST_SAVED:
            if len(known) >= MOST_SAVED:
                known.clear()
            known[key] = question
    return question.answered(probabilities, evaluation.evidence, watch)


def answered(
    program: Program,
    answer: Callable[[Answers], Any],
    facts: Mapping[str, Any] | None,
    evidence: Mapping[str, Any] | None,
    time_limit: float | None,
    memory_limit: int | str | None,
    progress: bool | None,
    query: tuple[Evidence, ...] = (),
) -> Any:
    """What `answer` makes of the answers to a question about a program, whose options are those of `Program.run`."""
    watch = Watch(checked_limits(time_limit=time_limit, memory_limit=memory_limit), progress)
    inputs = taken(checked_facts(facts))

    def work() -> Any:
        plan = program._plan_for(inputs)
        evaluation = plan.exact(inputs, evidence, watch, [item.relation for item in query])
        return answer(answers(plan.rules, evaluation, query, watch))

    return watched(watch, work)


def _nodes(table: Table) -> np.ndarray:
    assert table.tags is not None
    return table.tags[: table.size]


def queried_tuples(query: Any, rules: Rules) -> tuple[Evidence, ...]:
    """The tuples that a query names, as items that are to be decided on.

    query  relation -> list of tuples, or names of relations without columns

    Raises BindingError for an unknown relation, and as for evidence.
    """
    if isinstance(query, str):
        query = [query]
    if not isinstance(query, Mapping):
        if not isinstance(query, Iterable) or not all(isinstance(name, str) for name in query):
            hint = 'query={"calls": ["Ada", "Bob"]}, or query=["burglary"] for relations without columns'
            raise TypeMismatchError(f"the query is a {type(query).__name__}", hint=hint)
        query = dict.fromkeys(query, True)
    for name, rows in query.items():
        relation = known_relation(rules, name, f"a query of an unknown relation `{name}`", rules.source)
        if rows is True and relation.types:
            hint = f'give the tuples: query={{"{name}": [...]}}'
            raise TypeMismatchError(f"`{name}` has columns, and a query is of its tuples", hint=hint)
    return checked_evidence(query, replace(rules, evidence=()))
