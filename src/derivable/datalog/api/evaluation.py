"""The relations of a program under one provenance, computed from facts, and from more facts.

What an addition changes is written to tables where they are, after a note of what they were. Everything else that it
makes, the ground derivation graph and the tables of strata that are recomputed among it, replaces what was there at the
end, at once. So whatever ends an addition early, the evaluation is what it was.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.core.diagnostics import UnsupportedError
from derivable.core.interrupts import sigint_deferred
from derivable.core.lazy import optional_module
from derivable.core.progress import NEVER
from derivable.datalog.facts.coins import Coins
from derivable.datalog.facts.load import load_python_facts
from derivable.datalog.facts.program_facts import check_choices
from derivable.datalog.facts.removal import without
from derivable.datalog.facts.store import FactStore, add_terms
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.run.demand_facts import demanded
from derivable.datalog.run.execute import Executor
from derivable.datalog.run.foreign_join import ForeignFacts
from derivable.datalog.run.limits import Watch
from derivable.datalog.run.profile import Profile, StratumEffort
from derivable.datalog.run.small_runs import run_whole
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.ground_graph import GroundGraph
from derivable.datalog.tags.provenance import (
    EXACT,
    PROOFS,
    Inference,
    carrier_of,
    distributes,
    needs_derivations,
    tags_of,
)
from derivable.datalog.tags.tags import Algebra, GraphTags, Untagged
from derivable.device.cpu.memory import expect_bytes

if TYPE_CHECKING:
    from derivable.circuit.queries.bounds import Interval
    from derivable.datalog.api.changes import Change
    from derivable.datalog.api.incremental import Before
    from derivable.datalog.apm.device_profile import DeviceProfile
    from derivable.datalog.exact.approximate import Bounds
    from derivable.datalog.exact.evidence import Conditioned
    from derivable.datalog.exact.exact import Compiled, Grounding
    from derivable.datalog.exact.saved_runs import SavedRun
    from derivable.datalog.rules.nodes import Evidence, Rules
    from derivable.datalog.tags.tags import ColumnTags

# The table of an output and its tags as users see them, None without tags.
Shown = tuple[Table, Any]


class Evaluation:
    """A run of a program, and its results.

    ram      the program; `untagged_ram` is the one for runs without tags
    record   the provenance; the relations of some are computed with tags, of others as a ground derivation graph
    columns  the tags of tuples where they are no probabilities of an exact inference, else None
    algebra  what the machine runs on
    tables   relation -> its table, after `run`
    outputs  relation -> what users see of it
    profile  what the run has spent, or what says it
    iteration_limit  of `run`: recursions may not be at their end
    kin      the evaluations that may share tables with this one
    journal  relation -> its table before an addition that is not at its end
    evidence      what was observed, of exact runs, and
    log_evidence  after `run`, the logarithm of its probability
    width         how wide the bounds of an approximate run may be; then there are, after `run`,
    bounds        of each output, and
    evidence_bounds  of the probability of the evidence
    """

    def __init__(
        self,
        ram: Ram,
        facts: FactStore,
        record: Semiring | Inference,
        k: int,
        evidence: tuple[Evidence, ...] = (),
        width: float | None = None,
        names: Sequence[str] | None = None,
    ):
        """names: the outputs, None for those of the RAM program."""
        self.ram = ram if record is boolean else ram.with_tags(distributes(record))
        self.untagged_ram, self.facts, self.record, self.k = ram, facts, record, k
        self.columns: ColumnTags | None = None
        if record is EXACT:
            self.algebra: Algebra = GraphTags(GroundGraph(boolean))
        elif record is boolean:
            self.algebra = Untagged()
        else:
            self.columns = tags_of(record, facts.random, k)
            self.algebra = self.columns
            if isinstance(record, Semiring) and needs_derivations(record, self.ram.is_recursive):
                self.algebra = GraphTags(GroundGraph(record))
        self.tables: dict[str, Table] = {}
        self.outputs: dict[str, Shown] = {}
        self.profile: Profile | DeviceProfile | Callable[[], Profile] | None = None
        self.foreign = ForeignFacts(facts.random)
        self.coins = Coins(facts.random)
        self.iteration_limit: int | None = None
        self.kin: weakref.WeakSet[Evaluation] = weakref.WeakSet([self])
        self.has_separate_facts = True
        self.journal: dict[str, Before] = {}
        self.evidence, self.log_evidence = evidence, 0.0
        self.width, self.names = width, tuple(self.ram.outputs if names is None else names)
        self.bounds: dict[str, Bounds] = {}
        self.evidence_bounds: Interval | None = None

    def run_on(self, device: Any, name: str, watch: Watch) -> None:
        """Compute the outputs on a device; `name` is that of the provenance."""
        optional_module("torch", "torch", "torch")
        from derivable.datalog.apm.run import run_on_device

        if self.ram.demand is not None:
            self.facts.bring()
        self.facts.relations = self.facts.more(demanded(self.ram, self.facts, watch))
        self.iteration_limit = watch.limits.iteration_limit
        tables, self.profile = run_on_device(self.ram, self.facts, self.algebra, name, device, watch, self.coins)
        self.outputs = self.shown(self.ram.outputs, tables, self.algebra, watch)

    def run(
        self,
        watch: Watch,
        is_counted: bool = False,
        goal: str | None = None,
        is_extensible: bool = True,
        is_profiled: bool = False,
    ) -> None:
        """Compute all relations, or what there is when the goal has a tuple.

        is_counted   whether the rows of each operator are counted for the profile
        is_extensible      whether facts may be added later
        is_profiled  whether the costs of a run are what is asked for
        """
        pattern = None
        if self.record is EXACT and self.width is None and not (is_extensible or is_profiled or goal):
            from derivable.datalog.exact.saved_runs import pattern_of, saved_of

            pattern = pattern_of(self.ram, self.facts, watch.limits, self.evidence)
            circuits = None if pattern is None else saved_of(self.ram).get(pattern) or self.of_network(pattern, watch)
            if circuits is not None:
                watch.remaining()
                self.facts = replace(self.facts, symbols=circuits.symbols)
                self.profile = Profile(self.ram, [StratumEffort() for _ in self.ram.strata], [], from_earlier=True)
                self.show_saved(circuits.under(self.evidence), self.facts.random.probabilities)
                return
        num_facts = len(self.facts.random.probabilities)
        if self.ram.demand is not None:
            self.facts.relations = self.facts.more(demanded(self.ram, self.facts, watch))
        begun = None
        if not (is_extensible or is_profiled or is_counted or goal):
            with self.watched_by(watch):
                begun = run_whole(self.ram, self.facts, watch, self.algebra)
                if begun is not None and begun.number_of_strata == len(self.ram.strata):
                    self.outputs = self.shown(self.names, begun.tables, self.algebra, watch)
                    self.profile = begun.profile
                    return
        executor = Executor(self.ram, self.facts, self.algebra, watch, None, goal, begun)
        executor.foreign, executor.coins = self.foreign, self.coins
        executor.counts = {} if is_counted else None
        executor.only_outputs = not (is_extensible or is_profiled or is_counted or goal)
        self.iteration_limit = watch.limits.iteration_limit
        with self.watched_by(watch):
            with self.weighing(self.algebra, executor.tables, watch):
                self.tables = executor.run()
            self.profile = executor.profile()
            if pattern is None or not any(self.tables[name].size for name in self.names):
                self.outputs = self.shown(self.names, self.tables, self.algebra, watch)
            else:
                self.save(pattern, num_facts, watch)

    def ground(self, watch: Watch, has_weights: bool = True) -> Grounding:
        """What the rules derive and how, of an exact run, before anything of it is compiled.

        has_weights  whether probabilities are known, so that aggregates may go by them; else UnsupportedError
        """
        assert isinstance(self.algebra, GraphTags)
        if self.ram.demand is not None:
            self.facts.relations = self.facts.more(demanded(self.ram, self.facts, watch))
        executor = Executor(self.ram, self.facts, self.algebra, watch)
        executor.foreign, executor.coins = self.foreign, self.coins
        with self.watched_by(watch), self.weighing(self.algebra, executor.tables, watch):
            if not has_weights:
                self.algebra.weigh = _no_weights
            self.tables = executor.run()
        return self.grounding(self.tables, self.algebra.graph, watch)

    def of_network(self, pattern: tuple[Any, ...], watch: Watch) -> SavedRun | None:
        """The circuits of a program that is a network, made now or by an earlier run; None if it is no network."""
        from derivable.datalog.exact.networks import network_run, unseen
        from derivable.datalog.exact.saved_runs import SavedRun, observed, save, saved_of

        # Facts that are impossible or certain are no variables of its circuit; outputs are observed in any.
        numbers = np.asarray(self.facts.random.probabilities, np.float64)
        circuit = observed(unseen(self.evidence, self.names)), *pattern[1:]
        pattern = circuit, (numbers <= 0.0).tobytes(), (numbers >= 1.0).tobytes()
        circuits = saved_of(self.ram).get(pattern)
        if circuits is None:
            watch.hide()
            made = network_run(self.ram, self.facts, self.names, self.evidence, watch)
            if made is None:
                return None
            circuits = SavedRun(made[0], self.facts.symbols, made[1], ())
            save(self.ram, pattern, circuits)
        return circuits

    def save(self, pattern: Hashable, num_facts: int, watch: Watch) -> None:
        """Compile the results of a run, show them, and save the circuits for runs of the same pattern.

        num_facts  the number of random facts before the run
        """
        from derivable.datalog.exact.saved_runs import SavedRun, save

        outputs = {name: self.tables[name] for name in self.names}
        roots, random = np.concatenate([*map(_tags, outputs.values())]), self.facts.random
        assert isinstance(self.algebra, GraphTags)
        compiled = self.compiled(roots, self.tables, self.algebra.graph, watch)
        circuits = SavedRun(outputs, self.facts.symbols, compiled, random.probabilities[num_facts:])
        self.show_saved(circuits, random.probabilities[:num_facts])
        save(self.ram, pattern, circuits)

    def show_saved(self, circuits: SavedRun, probabilities: Sequence[float]) -> None:
        """Have as outputs those of saved circuits with these probabilities of facts."""
        shown, self.log_evidence = circuits.shown(probabilities)
        self.outputs = {name: _possible(table, tags, possible) for name, table, tags, possible in shown}

    @contextmanager
    def watched_by(self, watch: Watch) -> Iterator[None]:
        """In this block long operations on tags, texts and large arrays look at the limits of a run."""
        if self.columns is not None:
            self.columns.watch(watch)
        self.facts.symbols.expect = watch.expect
        limits, looked = watch.limits, None
        if limits.memory_limit is not None or limits.time_limit is not None:
            looked = expect_bytes.set(partial(watch.expect, what="tables"))
        try:
            yield
        finally:
            if looked is not None:
                expect_bytes.reset(looked)
            self.facts.symbols.expect = None
            if self.columns is not None:
                self.columns.watch(NEVER)

    @contextmanager
    def weighing(self, algebra: Algebra, tables: Mapping[str, Table], watch: Watch) -> Iterator[None]:
        """Aggregates may ask in this block how much nodes count."""
        if not isinstance(algebra, GraphTags):
            yield
            return
        algebra.weigh = lambda nodes: self.weights(nodes, tables, algebra.graph, watch)
        try:
            yield
        finally:
            algebra.weigh = None

    def shown(
        self, names: Iterable[str], tables: Mapping[str, Table], algebra: Algebra, watch: Watch
    ) -> dict[str, Shown]:
        """What users see of some relations, which leaves out the tuples that are in no world."""
        names = list(names)
        if isinstance(algebra, Untagged):
            return {name: (tables[name], None) for name in names}
        columns: dict[str, Any] = {name: _tags(tables[name]) for name in names}
        if isinstance(algebra, GraphTags):
            nodes = list(columns.values())
            roots = np.concatenate([*nodes, np.empty(0, np.int64)])
            if self.columns is None:
                made = self.answered(roots, tables, algebra.graph, watch)
                tags, is_possible, self.log_evidence = made.shown(self.facts.random.probabilities)
                parts = list(zip(names, _split(tags, nodes), _split(is_possible, nodes)))
                if self.width is not None:
                    starts = np.cumsum([0, *map(len, nodes)]).tolist()
                    self.bounds = {
                        name: made.bounds.rows(start + np.flatnonzero(is_possible))
                        for start, (name, _, is_possible) in zip(starts, parts)
                    }
                    self.evidence_bounds = made.evidence
                return {name: _possible(tables[name], tags, is_possible) for name, tags, is_possible in parts}
            columns = dict(zip(names, _split(self.values(roots, tables, algebra.graph, watch), nodes)))
        assert self.columns is not None
        shown_relations: dict[str, Shown] = {}
        for name, column in columns.items():
            tags = self.columns.show(column)
            shown_relations[name] = _possible(tables[name], tags, self.columns.is_shown(column, tags))
        return shown_relations

    def answered(self, nodes: np.ndarray, tables: Mapping[str, Table], graph: GroundGraph, watch: Watch) -> Any:
        """What says how probable nodes of a ground derivation graph are: their circuit, or an approximation."""
        if self.width is None:
            return self.compiled(nodes, tables, graph, watch)
        from derivable.datalog.exact.approximate import Approximation

        grounding = self.grounding(tables, graph, watch)
        return Approximation(grounding, nodes, self.ram, self.evidence, self.width, watch)

    def compiled(
        self, nodes: np.ndarray, tables: Mapping[str, Table], graph: GroundGraph, watch: Watch
    ) -> Compiled | Conditioned:
        """The circuit of nodes of a ground derivation graph, of outputs given the evidence."""
        if self.evidence:
            from derivable.datalog.exact.evidence import Conditioned

            return Conditioned.of(self.grounding(tables, graph, watch), nodes, self.ram, self.evidence, watch)
        from derivable.datalog.exact.exact import Compiled

        return Compiled.of(self.grounding(tables, graph, watch), nodes, watch)

    def weights(self, nodes: np.ndarray, tables: Mapping[str, Table], graph: GroundGraph, watch: Watch) -> np.ndarray:
        """How much nodes count for aggregates, while relations are computed: [node] float64."""
        values = self.values(nodes, tables, graph, watch)
        return values if self.columns is None else self.columns.weights(values)

    def values(self, nodes: np.ndarray, tables: Mapping[str, Table], graph: GroundGraph, watch: Watch) -> Any:
        """The values [node] of nodes of a ground derivation graph."""
        if self.columns is None:
            from derivable.datalog.exact.exact import Compiled

            compiled = Compiled.of(self.grounding(tables, graph, watch), nodes, watch)
            return compiled.probabilities(self.facts.random.probabilities)
        from derivable.datalog.exact.ground_program import levelled

        assert isinstance(self.record, Semiring)
        return levelled(self.grounding(tables, graph, watch), nodes, {}, self.record, watch).evaluate(self.columns)

    def grounding(self, tables: Mapping[str, Table], graph: GroundGraph, watch: Watch) -> Grounding:
        """The results of a run, to be compiled."""
        from derivable.datalog.exact.exact import Grounding

        watch.hide()
        return Grounding(tables, graph.finish(), self.facts, tuple(graph.recursive))

    # More facts

    def loaded(self, facts: Mapping[str, Any], watch: Watch) -> FactStore:
        """More facts, as `inputs.taken` hands them on, for `change` or `exact`."""
        self.recover()
        self.separate_facts()
        added = FactStore(self.facts.symbols, self.facts.random, look=watch.read)
        load_python_facts(self.ram, facts, added, loaded=self.ram.relations)
        added.copy_parts()
        return added

    def without(self, facts: Mapping[str, Any], watch: Watch) -> tuple[FactStore, FactStore]:
        """The facts without some of them, and the tuples of these that are no facts any more.

        Raises BindingError for a fact that is not there.
        """
        from derivable.datalog.api.changes import reads_of

        gone = FactStore(self.facts.symbols, self.facts.random.copy(), look=watch.read)
        load_python_facts(self.ram, facts, gone, loaded=self.ram.relations)
        left = self.facts.fork()
        gone.relations = {name: some for name, some in gone.relations.items() if name in facts}
        for name in gone.relations:
            relation, is_tagged = self.ram.relations[name], not isinstance(self.algebra, Untagged)
            # What rules derive may be a fact twice.
            is_fact = not self.ram.strata[reads_of(self.ram).home[name]].full
            are_distinct = is_fact and self.tables[name].size == len(self.facts.relations.get(name, ()))
            left.relations[name], gone.relations[name] = without(self.facts, gone, relation, is_tagged, are_distinct)
        # What facts bring with them: the rows of their terms, and what is asked for.
        brought = [constructor.relation for constructor in self.ram.constructors.values()]
        for name in (*brought, *(() if self.ram.demand is None else self.ram.demand.outputs)):
            left.relations.pop(name, None)
        add_terms(self.ram, left)
        return left, gone

    def change(
        self, added: FactStore, watch: Watch, left: FactStore | None = None, gone: FactStore | None = None
    ) -> Change:
        """Add loaded facts, and compute what they reach. Afterwards `outputs` are new.

        left  the facts that stay, if some do not, which are gone
        """
        before, known = (self.facts, self.tables) if left is None else (left, None)
        everything = replace(before, relations=before.more(added))
        added.relations = added.more(demanded(self.ram, everything, watch, known))
        algebra = self.algebra
        if isinstance(algebra, GraphTags):
            algebra = GraphTags(algebra.graph.fork())
        from derivable.datalog.api.incremental import Continuation

        try:
            going = Continuation(self, added, algebra, watch, before, gone or FactStore())
            going.foreign = self.foreign.copy(self.facts.random)
            going.coins = self.coins.copy(self.facts.random)
            with self.watched_by(watch):
                with self.weighing(algebra, going.tables, watch):
                    done = going.go_on()
                reached = {name for step in done.steps for name in step.relations}
                outputs = self.shown([n for n in self.ram.outputs if n in reached], going.tables, algebra, watch)
            relations = before.more(added)
        except BaseException:
            with sigint_deferred():
                self.recover()
            raise
        with sigint_deferred():
            self.tables, self.algebra = going.tables, algebra
            self.foreign, self.coins = going.foreign, going.coins
            self.outputs = self.outputs | outputs
            self.facts.relations = relations
            self.journal.clear()
        return done

    def exact(self, loaded: FactStore, watch: Watch, left: FactStore | None = None) -> Evaluation | None:
        """The exact evaluation with loaded facts too; None if none of them has a probability."""
        if not any((part >= 0).any() for added in loaded.relations.values() for part in added.variables):
            return None
        before = self.facts if left is None else left
        made = Evaluation(self.untagged_ram, before.fork(), EXACT, self.k)
        made.facts.random.require(carrier_of(EXACT))
        made.facts.relations = before.more(loaded)
        made.run(watch)
        return made

    def recover(self) -> None:
        """Undo what an addition has left behind that something ended."""
        for name, before in list(self.journal.items()):
            there, table = self.tables[name], before.again()
            self.tables[name] = table
            shown, tags = self.outputs.get(name, (None, None))
            if shown is there:
                self.outputs[name] = table, tags
            del self.journal[name]

    def separate_facts(self) -> None:
        """Have random facts, and numbers of proofs, that no other evaluation writes to."""
        if self.has_separate_facts:
            return
        random = self.facts.random.copy()
        self.facts.random = random
        self.foreign, self.coins = self.foreign.copy(random), self.coins.copy(random)
        if self.columns is not None:
            columns = self.columns.copy(random)
            if self.algebra is self.columns:
                self.algebra = columns
            self.columns = columns
        self.has_separate_facts = True

    def __del__(self):
        # Indexes know their tables: cycles, which would keep the tables until Python looks for such.
        if not getattr(self, "kin", True):
            for table in self.tables.values():
                table.indexes.clear()
                getattr(table, "below", table).indexes.clear()

    def is_shared(self, name: str) -> bool:
        """Whether another evaluation has the same table of a relation."""
        table = self.tables[name]
        return any(other.tables.get(name) is table for other in list(self.kin) if other is not self)

    def fork(self) -> Evaluation:
        """An evaluation with the same results, which changes independently from here."""
        self.recover()
        made = Evaluation(self.untagged_ram, self.facts.fork(), self.record, self.k)
        made.tables, made.outputs = dict(self.tables), dict(self.outputs)
        made.iteration_limit, made.profile = self.iteration_limit, self.profile
        made.columns, made.algebra = self.columns, self.algebra
        made.foreign, made.coins = self.foreign, self.coins
        # Both copy them before they write to them.
        self.has_separate_facts = made.has_separate_facts = False
        made.kin = self.kin
        self.kin.add(made)
        return made


def take_tags(facts: FactStore, rules: Rules, record: Semiring | Inference, name: str | None = None) -> None:
    """Have a loaded store know what the tags of its facts are for; `name` is what the user calls the provenance.

    Raises DomainError for facts whose tags are none of the provenance, and for choices that add up to more than one.
    """
    if isinstance(record, Inference) and record.instance is None and record is not PROOFS:
        check_choices(rules)
    facts.random.require(carrier_of(record, name))


def _no_weights(nodes: np.ndarray) -> np.ndarray:
    raise UnsupportedError(
        "an aggregate goes by probabilities, and these are what is learned",
        hint="leave out what `top`, `rank`, `normalize` and the like derive",
    )


def _possible(table: Table, tags: Any, is_possible: np.ndarray) -> Shown:
    """The table and tags without the tuples that are in no world."""
    if is_possible.all():
        return table, tags
    rows = np.flatnonzero(is_possible)
    possible = Table(table.name, table.types, table.new_tags)
    possible.insert_from(table, rows)
    return possible, tags[rows]


def _split(values: Any, like: Sequence[np.ndarray]) -> list[Any]:
    """The values in parts of these lengths."""
    ends = np.cumsum([0, *map(len, like)]).tolist()
    return [values[start:stop] for start, stop in pairwise(ends)]


def _tags(table: Table) -> Any:
    return table.tags[: table.size]
