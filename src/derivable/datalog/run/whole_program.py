"""Small runs as one call: the layout of all tables, indexes and kernels is kept with the program.

To make tables and drivers and to bind kernels costs a small run some hundred times what its rules cost. A program
that has run often enough keeps them: a run writes its facts to one array, calls `machine.driver.run`, and copies the
outputs. Rows come in the order of other runs, and what these run in another way is left to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from derivable.core.collection import gc_paused
from derivable.core.lazy import later
from derivable.core.progress import NEVER
from derivable.datalog.facts.store import FactStore, new_store
from derivable.datalog.fused import fused
from derivable.datalog.fused.kernel_plan import Fused
from derivable.datalog.machine import words as w
from derivable.datalog.machine.machine import ENDLESS, Machine, may_use_compiled
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.equivalence import equivalence_of
from derivable.datalog.ram.join_order import LEAST_ROWS, sized_relations
from derivable.datalog.ram.linear import BASE, linear_loop
from derivable.datalog.run.execute import Begun, Executor
from derivable.datalog.run.forms import Form, Sharing
from derivable.datalog.run.limits import Watch
from derivable.datalog.run.overflow import looks_of, warn_of_overflow
from derivable.datalog.run.profile import MACHINE, Effort, Profile, StratumEffort
from derivable.datalog.scalars.nodes import Const
from derivable.datalog.shortcuts import shortcuts
from derivable.datalog.shortcuts.linear import Linear
from derivable.datalog.shortcuts.union_find import UnionFind
from derivable.datalog.tables import row_set
from derivable.datalog.tables.index import Index
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import Algebra, ColumnTags, Untagged
from derivable.datalog.values.values import word_of
from derivable.device.cpu.memory import longer

if TYPE_CHECKING:
    from derivable.datalog.fused import emit, emit_insert
    from derivable.datalog.kernels import row_sets
    from derivable.datalog.machine import driver
    from derivable.datalog.run import tagged_program
else:
    emit, emit_insert = later("derivable.datalog.fused.emit"), later("derivable.datalog.fused.emit_insert")
    tagged_program = later("derivable.datalog.run.tagged_program")
    row_sets, driver = later("derivable.datalog.kernels.row_sets"), later("derivable.datalog.machine.driver")

# What one such run saves, in rows; the facts of one, rows that a table has room for at first, candidates of a run; and
# what there is more of each for each store, which saves a round through Python. Rows of a table that no recursion has.
SAVED, MOST_FACTS, ROOM, MOST_CANDIDATES = 256, 1 << 10, 1 << 6, 1 << 16
FACTS_A_STORE, CANDIDATES_A_STORE, ROWS_A_STORE, MOST_ROWS = 4, 1 << 8, 1 << 6, 1 << 15
# Stores that take as long over columns as importing what loads kernels.
MANY_STORES = 300
# Runs between looks for kernels.
LOOKS = 8
# The families of values that are numbered as they come.
NUMBERED = "text", "duration", "tensor"
_KEY = "small", "runs"
Row = tuple[Const, ...]


@dataclass(eq=False)
class SmallRuns:
    """What a program keeps for its small runs.

    runs    how many there were that found no memory, -1 if none is to be made
    free    the memory that no run has now
    number  of the first strata that may be run so, None if that is not known yet
    """

    runs: int = 0
    free: list[WholeProgram] = field(default_factory=list)
    number: int | None = None


def run_whole(ram: m.Ram, facts: FactStore, watch: Watch, algebra: Algebra) -> Begun | None:
    """What the first strata of a small run find, up to one that is run in another way, all where there is none.

    None if it is no small run, or not one of many, or has tags of no fixed width.
    """
    form = algebra.form if isinstance(algebra, ColumnTags) else None
    if form is None and (not isinstance(algebra, Untagged) or facts.random.probabilities):
        return None
    key, limits = (_KEY, form), watch.limits
    kept = ram.plans.get(key)
    if kept is None:
        kept = ram.plans.setdefault(key, SmallRuns())
    if kept.runs < 0:
        return None
    if limits.iteration_limit is not None or limits.round_limit is not None or limits.tuple_limit is not None:
        return None
    try:
        program = kept.free.pop()
    except IndexError:
        kept.runs += 1
        if kept.runs * saved_by(ram) < fused.FEW_ROWS:
            return None
        made = WholeProgram if form is None else tagged_program.TaggedProgram
        with gc_paused():
            program = made.of(ram, algebra, kept.number)
    # What an error leaves behind is not used again.
    found = program.run(facts, ram, algebra) if program is not None and program.is_bound() else None
    if program is None:
        kept.runs = -1
    elif program.first_other < program.number_of_strata:
        # The next run makes one for those before the one that has a store without a kernel.
        kept.number = program.first_other
    else:
        kept.free.append(program)
    return found


def saved_by(ram: m.Ram) -> int:
    """What a run saves, in rows."""
    return SAVED + fused.CALL_ROWS * sum(len(stratum.once) + len(stratum.loop) for stratum in ram.strata)


class WholeProgram(Machine):
    """All stores of a program in the memory of the driver, for one run after the other.

    constants    (where the memory has it, constant) of those whose words differ from run to run
    rows         (number of the table, row of constants) of rules that read nothing
    runs         how many there were before kernels were bound
    first_other  the number of the first stratum that has a store without a kernel, as far as that is known
    computed     the relations whose integers expressions compute with that may leave their types
    reach        the least and the greatest word of the facts of runs that were looked at for such
    """

    def __init__(
        self,
        executor: Executor,
        onces: Sequence[Sequence[m.Store]],
        loops: Sequence[Sequence[m.Store]],
        rows: Sequence[tuple[str, Row]],
    ):
        ram, own = executor.ram, [[*once, *loop] for once, loop in zip(onces, loops)]
        relations = [stratum.relations for stratum in ram.strata]
        computed = {name for names in relations for name in names}
        others = [name for name in executor.tables if name not in computed]
        super().__init__(executor, relations, [*zip(onces, loops)], others)
        for table in self.tables:
            # Small ones never do, and all have the layout for which kernels are bound.
            table.row_set.may_have_prefixes = False
        # The arguments of all stores of a form, and the first stratum that reads an index.
        self.blocks, self.first_use, self.kernels = [], {}, []
        self.rows = [(self.number[name], row) for name, row in rows]
        words = self.strata
        for number, stratum in enumerate(ram.strata):
            words[number, w.BASE] = self.number.get(f"{BASE} {number}", -1)
            rules = equivalence_of(stratum) if stratum.loop and UnionFind in shortcuts() else None
            if rules is not None and all(t.family != "float" for t in executor.tables[rules.relation].types):
                names = (rules.relation, *sorted(rules.steps))
                words[number, w.DECIDES] = self.number[names[not rules.is_transitive]]
        is_sized, number_of_stores = any(map(sized_relations, own)), len(self.stores)
        # In another order rows would come in another order too, and so they do where a recursion has sets of them.
        self.most_rows = LEAST_ROWS if is_sized else row_set.SET_ROWS + ROWS_A_STORE * number_of_stores
        in_recursion = {name for stratum in ram.strata if stratum.loop for name in stratum.relations}
        is_small = [is_sized or name not in ram.relations or name in in_recursion for name in self.names]
        self.most_of_table = [min(row_set.SET_ROWS if small else MOST_ROWS, self.most_rows) for small in is_small]
        self.once = np.array(
            [place for place, store in enumerate(self.stores) if store.relation not in in_recursion], int
        )
        self.most_facts = MOST_FACTS + FACTS_A_STORE * number_of_stores
        self.most_candidates = MOST_CANDIDATES + CANDIDATES_A_STORE * number_of_stores
        self.saved = saved_by(ram)
        self.stratum_of = np.searchsorted(words[1:, w.FIRST_STORE], np.arange(len(self.stores)), "right").tolist()
        self.facts = np.zeros(256, np.int64)
        self.constants: list[tuple[int, Const]] = []
        places = words[:, [w.FIRST_TABLE, w.BASE]].tolist()
        self.bases_of = [(number, base) for number, base in places if base >= 0]
        self.fresh = np.zeros_like(self.control)
        self.fresh[[w.ONLY, w.ONLY_TABLE, w.STRATUM]] = -1
        self.fresh[[w.MOST, w.ROUNDS]] = ENDLESS
        self.fresh[w.ROWS_LEFT] = self.most_rows
        self.outputs = ram.outputs
        looks = (look.store for number in range(len(ram.strata)) for look in looks_of(ram, number))
        self.computed = m.relations_read(looks) & self.number.keys()
        self.has_floats = any(t.family == "float" for table in self.tables for t in table.types)
        self.reach, self.num_words = (0, 0), 1
        self.number_of_strata = self.first_other = self.fresh[w.UNTIL] = len(ram.strata)
        self.runs = 0

    @classmethod
    def of(cls, ram: m.Ram, algebra: Algebra, most: int | None = None) -> Self | None:
        """At most the first `most` strata of a program, without kernels; None if those are run in another way."""
        given, is_tagged = ram.strata[:most], not isinstance(algebra, Untagged)
        number = next((k for k, stratum in enumerate(given) if _is_other(ram, stratum, is_tagged)), len(given))
        if ram.constructors or not any(stratum.once or stratum.loop for stratum in ram.strata[:number]):
            return None
        onces, loops, rows = [], [], []
        # Plans of its own: what the program keeps is not to refer to the program.
        ram = ram.first(number)
        store = new_store(ram)
        executor = Executor(ram, store, algebra.anew(store.random) if isinstance(algebra, ColumnTags) else algebra)
        names = [name for stratum in ram.strata for name in stratum.relations]
        executor.tables = {name: executor.tables[name] for name in dict.fromkeys((*names, *ram.relations))}
        for number, stratum in enumerate(ram.strata):
            once: list[m.Store] = []
            for one in stratum.once:
                assert isinstance(one, m.Store)
                row = _row(one)
                # Facts come before what other rules find.
                if row is None or any(one.relation == other.relation for other in once):
                    once.append(one)
                else:
                    rows.append((one.relation, row))
            onces.append(once)
            name = f"{BASE} {number}"
            linear = linear_loop(stratum, name) if Linear in shortcuts() and not is_tagged else None
            if linear is not None:
                executor.tables[name] = Table(name, executor.tables[linear.relation].types)
            loops.append(stratum.loop if linear is None else (linear,))
        return cls(executor, onces, loops, rows)

    # Kernels

    def is_bound(self) -> bool:
        """Whether all stores have their kernels, which are loaded or compiled for many runs alone."""
        if self.runs < 0:
            return True
        self.runs += 1
        is_due = self.runs % LOOKS == 1 or (self.saved >= fused.FEW_ROWS and self.runs < LOOKS)
        if fused.FEW_ROWS and not is_due:
            return False
        work = fused.FEW_ROWS + self.runs * self.saved
        is_long = len(self.stores) >= MANY_STORES
        if not may_use_compiled(work, *self.driver(), is_long):
            return False
        with gc_paused():
            return self.has_been_bound(work)

    def has_been_bound(self, work: int) -> bool:
        """The same, where the driver is there."""
        found = []
        for numbers, forms in self.forms:
            running = self.executor.running_of(self.stores[numbers[0]])
            running.plan()
            if running.fused is None or running.fused.kept.prefix is not None:
                self.first_other = min(self.first_other, self.stratum_of[numbers[0]])
                return False
            kernel = emit.compiled(emit_insert.InsertEmitter, running.fused.plan, None)
            found.append((numbers, forms, running.fused, kernel))
        if not self.has_begun(work, [kernel.function for *_, kernel in found]):
            return False
        for numbers, forms, planned, kernel in found:
            self.bind_form(numbers, forms, Sharing(forms[0], planned), planned, kernel)
        self.end_binding()
        return True

    def has_begun(self, work: int, kernels: list[Any]) -> bool:
        """Begin to bind kernels, if all are there."""
        self.kernels = kernels
        # Of all, so that those that are not there begin to be compiled now.
        are_there = ["address" in vars(kernel) or may_use_compiled(work, kernel) for kernel in self.kernels]
        if not all(are_there):
            return False
        for table in self.tables:
            table.grow_log(ROOM)
            table.row_set.grow(table, ROOM)
        self.begin()
        return True

    def end_binding(self) -> None:
        """Have what runs read, and forget what was for binding alone."""
        self.part_indexes()
        self.runs = -1
        # What refers to one another would stay until Python looks for such.
        self.executor.running.clear()
        for table in self.tables:
            table.indexes.clear()

    def driver(self) -> tuple[Any, Sequence[str]]:
        """What runs the stores, and the types of its parameters."""
        return driver.run, driver.TYPES

    def running_stores(self) -> list[fused.Running]:
        """None of any store: stores of one form have what is known of the first of them."""
        return []

    @cached_property
    def forms(self) -> list[tuple[list[int], list[Form]]]:
        """The numbers of the stores of each form, and these as such; a store that is no such is alone."""
        kinds: dict[tuple, int] = {}
        kind_of = {name: kinds.setdefault(table.types, len(kinds)) for name, table in self.executor.tables.items()}
        groups: dict[Any, tuple[list[int], list[Form]]] = {}
        for number, store in enumerate(self.stores):
            form = Form.of(store, kind_of.__getitem__)
            numbers, forms = groups.setdefault((number, None) if form is None else (-1, form.key), ([], []))
            numbers.append(number)
            if form is None:
                form = Form((), tuple(scan for scan in map(m.scan_of, store.query.operators) if scan is not None), ())
            forms.append(form)
        return list(groups.values())

    def bind_form(
        self, numbers: list[int], forms: list[Form], sharing: Sharing, found: Fused, kernel: emit.RuleKernel
    ) -> None:
        """Bind the stores of one form to their kernel: where the memory has its arguments, for all of them at once.

        Each argument lies in something of the store, so many words behind its begin.
        """
        count, own = len(numbers), emit_insert.OWN + kernel.num_positions
        read = [[self.number[scan.relation] for scan in form.scans] for form in forms]
        width = self.tables[self.words[numbers[0], w.TARGET]].width
        owns = self.allocate(count * (own + width)) + (own + width) * np.arange(count)
        sources = [part for what, _, part in kernel.parameters if what == "word"]
        words_at = self.allocate(count * len(sources)) + len(sources) * np.arange(count)
        # [place] where it begins in each store, and the offset of each argument behind one of these.
        begins: dict[Any, Any] = {
            "left": np.zeros(count, np.int64),
            "own": owns,
            "word": words_at,
            "target": self.bases[self.words[numbers, w.TARGET]],
        }
        arguments: list[tuple[Any, int]] = []
        for what, step, part in kernel.parameters:
            if what == "own":
                arguments.append(("own", part))
            elif what == "left":
                arguments.append(("left", w.LEFT))
            elif what == "word":
                arguments.append(("word", sum(key == "word" for key, _ in arguments)))
            elif what.startswith("target "):
                arguments.append(("target", getattr(w, what.removeprefix("target ").upper())))
            else:
                number, scan = sharing.scan_of[step], found.kept.scans[step]
                keys = sharing.keys_of[step] if what in ("heads", "heads_size", "following") else None
                if (number, keys) not in begins:
                    begins[number, keys] = self.begins_of(numbers, [one[number] for one in read], keys)
                (place,) = self.growing(found.reads[step], scan, what, part)
                arguments.append(((number, keys), place - int(begins[number, keys][0])))
        bases = np.stack([begins[begin] for begin, _ in arguments], 1)
        blocks = bases + np.array([offset for _, offset in arguments], np.int64)
        self.blocks.append(blocks)
        self.words[numbers, w.OWN], self.words[numbers, w.POSITIONS] = owns, kernel.num_positions
        self.words[numbers, w.BLOCK] = [self.address(block) for block in blocks]
        self.words[numbers, w.ENTRY] = kernel.function.address
        for form, at in zip(forms, words_at.tolist() if sources else ()):
            words = sharing.words_of(form)
            for place, source in enumerate(sources, at):
                word = words[source]
                if isinstance(word, int):
                    self.memory[place] = word
                    continue
                self.memory[place] = word_of(word.value, word.type, self.executor.symbols)
                # Those that are numbered are so in each run.
                if word.type.is_wide or word.type.family in NUMBERED:
                    self.constants.append((place, word))

    def begins_of(self, numbers: list[int], tables: list[int], keys: tuple[int, ...] | None) -> np.ndarray:
        """[store] where the words of a table that it reads begin, or those of its index over some columns."""
        if keys is None:
            return self.bases[tables]
        indexes = [self.tables[table].index(keys, False) for table in tables]
        for number, index in zip(numbers, indexes):
            stratum = self.stratum_of[number]
            self.first_use[index] = min(stratum, self.first_use.get(index, stratum))
        return np.array([self.place_of_index(index) for index in indexes], np.int64)

    def part_indexes(self) -> None:
        """Have those indexes apart that no store of their table's stratum reads."""
        first = self.strata[1:, w.FIRST_TABLE]
        after: list[list[int]] = [[] for _ in self.tables]
        growing = []
        for index, at in self.indexes.items():
            table = self.number[index.table.name]
            is_later = table >= first[-1] or self.first_use[index] > np.searchsorted(first, table, "right")
            (after[table] if is_later else growing).append(at)
        self.index_bases = np.array(growing, np.int64)
        self.indexes_after = np.full((len(after), max(map(len, after), default=0)), -1, np.int64)
        for table, places in enumerate(after):
            self.indexes_after[table, : len(places)] = places

    # Memory

    def write_index(self, index: Index) -> None:
        """The same, with room for all rows that its table has room for."""
        room = len(index.table.log)
        if len(index.following) < room:
            index.heads, index.rows_inserted = index.heads[:0], 0
            index.make_room(room)
        super().write_index(index)

    def has_room(self, number: int, least: int) -> bool:
        """Make room for that number of rows in a table; false if they are more than a small run has."""
        if least > self.most_of_table[number]:
            return False
        table = self.tables[number]
        self.read_table(number)
        table.grow_log(least)
        table.row_set.grow(table, len(table.log))
        self.changed(number)
        return True

    def have_bases_room(self) -> bool:
        """Make room for what a recursion reads of what was before it."""
        sizes = [(base, len(self.tables[number].log)) for number, base in self.bases_of]
        return all(len(self.tables[base].log) >= size or self.has_room(base, size) for base, size in sizes)

    def has_written(self, given: FactStore) -> bool:
        """Write the facts for the driver; false if they are too many."""
        facts, place, number_of_tables, left = self.facts, 1, 0, self.most_facts
        for name, columns in given.relations.items():
            number = self.number.get(name, len(self.tables))
            if number >= self.strata[-1, w.FIRST_TABLE]:
                # What no stratum has, nothing reads.
                continue
            table = self.tables[number]
            parts, variables = columns.given(len(table.types))
            count = len(variables)
            left -= count
            if left < 0 or (count >= len(table.log) and not self.has_room(number, count + 1)):
                return False
            if (end := place + 2 + count * table.width) > len(facts):
                facts = self.facts = longer(facts, 2 * end, place)
            facts[place], facts[place + 1] = number, count
            place += 2
            if not parts:
                facts[place:end] = 0
            for column in parts:
                facts[place : place + count] = column
                place += count
            place = end
            number_of_tables += 1
        for number, row in self.rows:
            words = [word_of(term.value, term.type, given.symbols) for term in row] or [0]
            if (end := place + 2 + len(words)) > len(facts):
                facts = self.facts = longer(facts, 2 * end, place)
            facts[place:end] = number, 1, *words
            place = end
        facts[0], self.num_words = number_of_tables + len(self.rows), place
        return True

    # Running

    def run(self, given: FactStore, ram: m.Ram, algebra: Algebra) -> Begun | None:
        """The outputs for these facts, and what says how much they have cost; None if this is no small run."""
        began = perf_counter()
        if not self.has_written(given) or not self.have_bases_room():
            return None
        self.control[:], self.activity[:] = self.fresh, 0
        self.memory[w.LEFT] = self.most_candidates
        for place, constant in self.constants:
            self.memory[place] = word_of(constant.value, constant.type, given.symbols)
        while (reason := self.call()) != w.ENDED:
            has_room = False
            if reason == row_sets.LOG_FULL:
                target = int(self.words[self.control[w.AT], w.TARGET])
                has_room = self.has_room(target, 2 * len(self.tables[target].log))
            # Of a recursion that goes on, the rows before it stay where they are.
            is_looping = self.control[w.ROUND] > 0
            if not has_room or not (is_looping or self.have_bases_room()):
                break
        return self.finished(given, ram, int(self.control[w.STRATUM]), perf_counter() - began)

    def finished(self, given: FactStore, ram: m.Ram, number: int, seconds: float) -> Begun | None:
        """What the first strata have found, all or those before one that this is no way to run; None if no rule ran."""
        is_all, count = number == self.number_of_strata, int(self.strata[number, w.FIRST_STORE])
        once = self.once[self.once < count]
        # Many candidates would be sorted.
        if not (is_all or count) or (self.words[once, w.CANDIDATES] >= row_set.SET_ROWS).any():
            return None
        outputs = {}
        for name in self.outputs if is_all else ram.first(number).outputs:
            size = int(self.memory[self.places_of_tables[self.number[name]] + w.SIZE])
            outputs[name] = self.tables[self.number[name]].first_rows(size)
        self.warn_of_overflow(given, ram, number)
        rounds = self.strata[:number, w.NUM_ROUNDS].copy()
        what = self.stores[:count], self.stratum_of, self.words[:count].copy(), rounds, seconds
        return Begun(number, outputs, partial(profile_of, ram, *what))

    def warn_of_overflow(self, given: FactStore, ram: m.Ram, until: int) -> None:
        """Warn of integers that have left their types in the first strata of this run, if its facts reach further than
        those before."""
        if not self.computed:
            return
        facts = self.facts[: self.num_words]
        reach = min(int(facts.min()), self.reach[0]), max(int(facts.max()), self.reach[1])
        if reach == self.reach and not self.has_floats:
            return
        if until == self.number_of_strata:
            self.reach = reach
        tables = {}
        for name in self.computed:
            size = self.memory[self.places_of_tables[self.number[name]] + w.SIZE]
            tables[name] = self.tables[self.number[name]].first_rows(int(size))
        # Of tags there are no copies here; what has any is taken to hold.
        for number in range(until):
            warn_of_overflow(ram, number, tables, Untagged(), given.symbols, NEVER)


def _is_other(ram: m.Ram, stratum: m.Stratum, is_tagged: bool) -> bool:
    """Whether a stratum is not run store by store."""
    rules = equivalence_of(stratum) if stratum.loop and not is_tagged and UnionFind in shortcuts() else None
    is_solved = rules is not None and rules.is_transitive and bool(rules.is_symmetric or rules.given)
    has_lattice = any(ram.relations[name].lattice is not None for name in stratum.relations)
    return (
        is_solved
        or has_lattice
        or stratum.timed is not None
        or not all(isinstance(one, m.Store) for one in stratum.once)
    )


def _row(store: m.Store) -> Row | None:
    """The row of a rule that reads nothing; None for other rules."""
    terms = tuple(term for term in store.query.terms if isinstance(term, Const))
    return terms if store.query.operators == (m.Unit(),) and len(terms) == len(store.query.terms) else None


def profile_of(
    ram: m.Ram, stores: Sequence[m.Store], stratum_of: list[int], words: np.ndarray, rounds: np.ndarray, seconds: float
) -> Profile:
    """What a run has spent; its seconds are shared by what stores did."""
    strata_of_run = [StratumEffort(max(0, number)) for number in rounds.tolist()]
    efforts, costs = [], words[:, w.RUNS : w.ROWS].sum(axis=1)
    second = seconds / max(1, int(costs.sum()))
    for store, number, row, cost in zip(stores, stratum_of, words.tolist(), costs.tolist()):
        if not row[w.RUNS]:
            continue
        effort, total = Effort(store, number, second * cost, row[w.RUNS]), strata_of_run[number]
        effort.candidates, effort.rows = row[w.CANDIDATES], row[w.ROWS]
        effort.by(MACHINE)
        efforts.append(effort)
        total.rows += effort.rows
        total.seconds += effort.seconds
    return Profile(ram, strata_of_run, efforts)
