"""Runs programs of the abstract parallel machine: on the reference of the column program, or on a device.

What is no array program goes to the host: columns travel there and back, which `explain("apm")` shows as calls. Facts
travel to the device once, outputs back when they are read; a round of a recursion reads back the sizes that it finds,
and static indexes stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import TypedSemiring
from derivable.core.diagnostics import DomainError, OutOfMemory, UnsupportedError
from derivable.core.lazy import optional_module
from derivable.core.progress import NEVER
from derivable.datalog.aggregates.groups import Context, run_aggregate
from derivable.datalog.apm import bit_matrices, tag_matrices
from derivable.datalog.apm.device_profile import DeviceProfile
from derivable.datalog.apm.host_strata import run_on_host, strata_of_device
from derivable.datalog.apm.lower import AtOnce, lower
from derivable.datalog.apm.tables import PROOFS, LeftToHost
from derivable.datalog.facts.coins import Coins
from derivable.datalog.facts.columns import FactColumns
from derivable.datalog.facts.store import FactStore
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.kernels.proof_form import MOST_WORDS, ProofForm, ProofOperation
from derivable.datalog.kernels.proofs import ONE
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.products import Product
from derivable.datalog.rules.nodes import AggregateRule
from derivable.datalog.run.draw import drawn
from derivable.datalog.run.execute import Executor, FinishedStrata
from derivable.datalog.run.foreign_join import generate
from derivable.datalog.run.limits import Watch
from derivable.datalog.run.queries import Batch, Queries
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.nodes import Const, Expr
from derivable.datalog.tables.row_set import RowSet
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.tag_columns import column_of, parts_of
from derivable.datalog.tags.proof_lanes import ProofLanes
from derivable.datalog.tags.random_facts import VALUE
from derivable.datalog.tags.tags import Algebra, ColumnTags, SemiringTags, Untagged
from derivable.datalog.tags.topkproofs import TopProofTags
from derivable.datalog.values.values import ValueType, word_of
from derivable.parallel.program import nodes as n
from derivable.parallel.program.execute import Arrays, Prepared
from derivable.parallel.program.pieces import TooManyPairs

if TYPE_CHECKING:
    from derivable.bridge.torch_columns import Torch

# The key of what a profile, and a program's saved plans, say about its joins.
JOINS = "#joins"


def arrays_on(device: Any) -> Torch:
    """The columns of a device: "cuda", "cuda:1", "torch:cpu" or a torch.device; "torch:cpu" is torch on the CPU.

    Raises DomainError for a name that is none, and UnsupportedError for a device that this machine lacks.
    """
    torch = optional_module("torch", "torch", "torch")
    from derivable.bridge.torch_columns import Torch

    name = str(device)
    try:
        target = torch.device(name.removeprefix("torch:"))
    except RuntimeError:
        hint = 'device="cuda", "cuda:1" or "torch:cpu"; None runs on the CPU\'s own kernels'
        raise DomainError(f"there is no device {name!r}", hint=hint) from None
    if target.type == "cpu" and not name.startswith("torch:") and isinstance(device, str):
        raise DomainError(
            "the CPU is what a run without `device` takes", hint='for torch on the CPU: device="torch:cpu"'
        )
    if target.type == "cuda" and (target.index or 0) >= torch.cuda.device_count():
        raise UnsupportedError(
            f"torch finds {torch.cuda.device_count()} CUDA devices, and the run asks for {name!r}",
            hint='leave `device` out, or use device="torch:cpu" for the same program on the CPU',
        )
    return (policy().device or Torch)(target)


def run_on_device(
    ram: m.Ram, facts: FactStore, algebra: Algebra, name: str, device: Any, watch: Watch, coins: Coins
) -> tuple[dict[str, Table], DeviceProfile]:
    """The tables of the outputs, computed on a device as far as it computes with them, and what that took.

    name   of the provenance, for messages
    coins  the random facts of the rules' ground instances

    Raises LeftToHost for tags and programs that a device does not compute with, and OutOfMemory where it has no more.
    """
    if not isinstance(algebra, Untagged | SemiringTags | TopProofTags):
        raise LeftToHost(
            f"the provenance {name!r} does not run on a device in this program, as its tags are no columns of scalars",
            hint='there run "unit", "minmaxprob", "addmultprob" and other semirings of scalars where recursion ends, '
            "and topkproofs; leave `device` out for all others",
        )
    strata, left = strata_of_device(ram, facts, algebra)
    arrays = arrays_on(device)
    if len(strata) < len(ram.strata):
        facts.bring()
    queries = Queries({}, algebra, facts.symbols, facts.random, watch)
    queries.coins = coins
    rounds: dict[str, tuple[int, int]] = {}

    def goes_on(loop: n.Loop | n.Otherwise, number: int, size: int) -> bool:
        if number == watch.limits.iteration_limit:
            return False
        watch.tuples += size
        watch.begin_round(0, number)
        rounds[loop.text] = number + 1, rounds.get(loop.text, (0, 0))[1] + size
        return True

    def host(begun: FinishedStrata | None = None) -> Executor:
        made = Executor(ram, facts, algebra, watch, begun=begun)
        made.foreign, made.coins = queries.foreign, coins
        return made

    import torch

    began = perf_counter()
    memory = _memory(device, "the run", "give fewer facts, bound the recursion, or run without `device`")
    # Columns that grow do so where they are, which autograd would not record.
    with torch.no_grad(), memory, _watching(algebra, watch):
        limits = watch.limits
        counts_rounds = limits.iteration_limit is not None or limits.round_limit is not None
        at_once = None if counts_rounds else _at_once
        executor = host()
        for number in range(strata.start):
            executor.run_stratum(number)
        proofs = _lanes(ram, facts, algebra, strata) if isinstance(algebra, TopProofTags) else None
        there = run_on_host(executor, arrays.device.type, strata)
        first = ram if strata.stop == len(ram.strata) else _first_strata(ram, strata.stop)
        tuples = watch.tuples

        def run(may_cut: bool) -> dict[str, Part]:
            rounds.clear()
            watch.tuples = tuples
            arguments = first.outputs, queries, goes_on, None, at_once, there, proofs, may_cut
            return run_program(first, facts, algebra, arrays, *arguments)

        try:
            parts = _whole_or_cut(first, arrays, run)
        except _Lost:
            left, executor = dict.fromkeys(ram.relations, "finds proofs again that were dropped"), host()
            watch.tuples, arrays.notes = 0, {}
            rounds.clear()
            facts.bring()
            tables = executor.run()
        else:
            new_tags = None if isinstance(algebra, Untagged) else algebra.empty
            tables: dict[str, Table] = {
                name: DeviceTable(name, ram.relations[name].types, new_tags, part) for name, part in parts.items()
            }
            if first is not ram:
                before = executor.profile()
                before.strata = before.strata[: strata.stop]
                copies = {name: _copy(table) for name, table in tables.items()}
                executor = host(FinishedStrata(strata.stop, copies | there, lambda: before))
                tables = executor.run()
    tables = {name: tables[name] for name in ram.outputs}
    for relation in there:
        left.setdefault(relation, "")
    spent, joins = perf_counter() - began, arrays.notes.pop(JOINS, "")
    return tables, DeviceProfile(str(device), spent, rounds, arrays.notes, left, executor.profile(), joins)


def _whole_or_cut(ram: m.Ram, arrays: Torch, run: Callable[[bool], dict[str, Part]]) -> dict[str, Part]:
    """What a run gives that cuts no rows; where joins have more pairs than torch sorts, or had many when there was no
    memory left, what one gives that cuts them, and later runs of the program begin with that."""
    saved = ram.plans.setdefault("apm", _Programs())
    if JOINS not in saved:
        try:
            return run(False)
        except TooManyPairs:
            pass
        except RuntimeError as error:
            if not _is_out_of_memory(error) or arrays.most_pairs <= arrays.piece:
                raise
        saved[JOINS] = True
    # What the first run had on the device is free here.
    arrays.note(JOINS, f"in pieces of at most {arrays.piece:,} pairs")
    return run(True)


def _first_strata(ram: m.Ram, number: int) -> m.Ram:
    """The first strata, with their relations alone."""
    key = "first", number
    if key not in ram.plans:
        first = ram.first(number)
        names = [name for stratum in first.strata for name in stratum.relations]
        ram.plans[key] = replace(first, relations={name: ram.relations[name] for name in names})
    return ram.plans[key]


def _copy(table: Table) -> Table:
    """A table of the host with the rows of one on a device."""
    columns = table.all_columns([np.int64] * len(table.types))
    made = Table(table.name, table.types, table.new_tags)
    ids = made.insert(columns, table.size)
    if made.tags is not None:
        made.tags[ids] = table.tags[: table.size]
    made.visible_size = made.size
    return made


@contextmanager
def _watching(algebra: Algebra, watch: Watch) -> Iterator[None]:
    """In this block long operations on tags look at the clock."""
    if isinstance(algebra, ColumnTags):
        algebra.watch(watch)
    try:
        yield
    finally:
        if isinstance(algebra, ColumnTags):
            algebra.watch(NEVER)


class _Lost(Exception):
    """Proofs that rows had no room for in an earlier round may be among the best again."""


@contextmanager
def _memory(device: Any, what: str, hint: str) -> Iterator[None]:
    """In this block a device without memory is our error."""
    try:
        yield
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        # Its frames have columns, which whoever keeps our error would keep on the device.
        error.__traceback__ = None
        raise OutOfMemory(f"{device} has no memory left for {what}: {str(error).splitlines()[0]}", hint=hint) from None


def _is_out_of_memory(error: RuntimeError) -> bool:
    return "out of memory" in str(error).lower()


def _lanes(ram: m.Ram, facts: FactStore, algebra: TopProofTags, strata: range) -> ProofLanes:
    """How a device computes with the proofs of some strata, of which those before have run.

    Raises LeftToHost where the literals of a sample are too many.
    """
    for number in strata:
        # Literals have the numbers that a run on the host gives them, which decide between equally probable proofs.
        for name in ram.strata[number].relations:
            algebra.store.singles(facts.variables_of([name]))
        algebra.may_deny(facts.may_be_denied(ram, number))
    lanes = ProofLanes.of(algebra.store)
    if lanes is None:
        raise LeftToHost(
            f"a sample has over {64 * MOST_WORDS:,} literals, of the {algebra.store.literals.number:,} of this run, "
            "and a device computes with the proofs of fewer",
            hint="give fewer uncertain facts to a sample, those of probability 1 without it, or leave `device` out",
        )
    return lanes


def _at_once(
    products: Sequence[Product],
    relations: Sequence[str],
    typed: TypedSemiring | None,
    arrays: Any,
    columns: Sequence[Any],
    watch: Callable[[int], None],
) -> list[Any] | None:
    """See `AtOnce`."""
    width = 2 + (0 if typed is None else len(typed.dtypes))
    tables = [columns[k : k + width] for k in range(0, len(columns), width)]
    if typed is None:
        solved = bit_matrices.solve(products, relations, arrays.device, tables, watch)
    else:
        solved = tag_matrices.solve(products, relations, typed, arrays, tables, watch)
    if solved is None:
        return None
    arrays.note(", ".join(relations), solved.note)
    return [column for rows in solved.rows for column in rows]


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a relation where they were computed, a column of zeros for a relation without columns.

    arrays      the library that has them
    columns     of words [row], or what the library makes them of
    components  of tags [row], none in a run without tags, and of proofs where rows are certain
    types       of the columns
    proofs      what sets of proofs mean, if tags are such
    """

    arrays: Arrays
    columns: tuple[Any, ...]
    components: tuple[Any, ...]
    types: Sequence[n.Type]
    proofs: ProofLanes | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def whole(self) -> tuple[Any, ...]:
        """The columns as arrays."""
        what = f"the columns of {len(self):,} rows"
        with _memory(getattr(self.arrays, "device", "the CPU"), what, "the number of rows is known without them"):
            return tuple(map(self.arrays.whole, self.columns))

    @cached_property
    def ordered(self) -> list[Any]:
        """The columns with sorted rows. Those with tags are sorted as they are."""
        columns = list(self.whole)
        if self.components or len(self) < 2:
            return columns
        order = self.arrays.sort(columns, list(self.types), len(self))
        return [self.arrays.gather(column, order, None) for column in columns]

    @property
    def rows(self) -> np.ndarray:
        return self.arrays.rows_to_host(self.ordered)[0]

    @property
    def tags(self) -> Any:
        columns = [self.arrays.to_host(component) for component in self.components]
        if self.proofs is not None:
            return self.proofs.sets_of(columns[0]) if columns else np.full(len(self), ONE)
        return column_of(columns) if columns else None


class DeviceTable(Table):
    """A table whose rows stay on the device until somebody reads them.

    part  the rows there, and their tags; None of a table that was pickled
    """

    def __init__(self, name: str, types: Sequence[ValueType], new_tags: Callable[[int], Any] | None, part: Part):
        super().__init__(name, types, new_tags)
        self.part: Part | None = part
        self.size = self.visible_size = len(part)
        if self.size:
            self.tags = part.tags
        # What these are depends on the rows.
        del self._log, self.row_set

    def __getattr__(self, name: str) -> Any:
        part = self.__dict__.get("part")
        if name not in ("_log", "row_set") or part is None:
            raise AttributeError(name)
        rows, tops = part.arrays.rows_to_host(part.ordered)
        self.row_set, self.log = RowSet.of(self.types, self.new_tags is not None), rows[:0].astype(np.int64)
        self.assign_distinct(rows, len(rows), tops)
        return self.__dict__[name]

    def all_columns(self, dtypes: Sequence[Any]) -> list[np.ndarray]:
        if self.part is None or "_log" in self.__dict__:
            return super().all_columns(dtypes)
        return [self.part.arrays.to_host(column, dtype) for column, dtype in zip(self.part.ordered, dtypes)]

    @property
    def elsewhere(self) -> tuple[Any, ...] | None:
        return None if self.part is None else self.part.whole[: len(self.types)]

    def __getstate__(self) -> dict[str, Any]:
        self.row_set  # noqa: B018
        return {**vars(self), "part": None}


def run_program(
    ram: m.Ram,
    facts: FactStore,
    algebra: Any,
    arrays: Arrays,
    names: Iterable[str] | None = None,
    queries: Queries | None = None,
    watch: Callable[[n.Loop | n.Otherwise, int, int], bool] | None = None,
    counts: Counter | None = None,
    at_once: AtOnce | None = None,
    computed: Mapping[str, Table] | None = None,
    proofs: ProofLanes | None = None,
    may_cut: bool = False,
) -> dict[str, Part]:
    """Relation -> its rows, sorted, and their tags.

    algebra  without tags, of a semiring, or of proofs
    arrays   the library and device
    names    of the relations; None for all
    queries  of the run: its random facts of predicates and coins
    watch    called before each round of a recursion; false ends it
    counts   gets how often each kind of node was run
    at_once  solves recursions of a known form without rounds; None if it is not to
    computed relations that the host has
    proofs   how a device computes with tags that are proofs
    may_cut  whether rules run in pieces where joins have too many pairs at once
    """
    computed = computed or {}
    tags = algebra if isinstance(algebra, SemiringTags) else None
    typed = proofs.form if proofs is not None else None if tags is None else tags.typed
    host = _Host(ram, facts, algebra, queries or Queries({}, algebra, facts.symbols, facts.random, NEVER))
    tables, prepared = _prepared(ram, typed, host, at_once, names, frozenset(computed), may_cut)
    inputs: dict[str, list[Any]] = {}
    if proofs is not None:
        # A copy, as a run sets the last one.
        inputs[PROOFS] = [arrays.constant(x.copy(), "int64", len(x)) for x in proofs.known]
    for name, relation in ram.relations.items():
        width, sets = len(relation.types), None if relation.is_certain else proofs
        if name in computed:
            inputs[name] = _computed_columns(computed[name], arrays, tags is not None, sets)
            continue
        columns, variables = facts.relations.get(name, FactColumns()).joined(width)
        rows = columns or [np.zeros(len(variables), np.int64)]
        values = () if tags is None else parts_of(_fact_tags(tags, variables))
        if sets is not None:
            assert not isinstance(algebra, Untagged)
            values = (sets.lanes_of(_fact_tags(algebra, variables)),)
        if isinstance(algebra, Untagged) and (variables >= 0).any():
            there = ~_is_impossible(facts, variables)
            rows = [column[there] for column in rows]
        inputs[name] = [arrays.constant(column, str(column.dtype), len(column)) for column in (*rows, *values)]
        for part in facts.elsewhere.get(name, ()):
            count = len(part[0])
            ones = [] if tags is None else [arrays.constant(x, str(x.dtype), count) for x in parts_of(tags.one(count))]
            if sets is not None:
                ones = list(ProofOperation(sets.form, "one")(arrays, (), count))
            more = [arrays.constant(column, "int64", count) for column in part]
            inputs[name] = [arrays.concatenate(list(pair)) for pair in zip(inputs[name], [*more, *ones])]
    results = iter(prepared(inputs, arrays, watch, counts))
    if proofs is not None and proofs.form.k > 1 and int(inputs[PROOFS][3]):
        raise _Lost
    model = {}
    for name, table in tables.items():
        columns, components = (tuple(next(results) for _ in part) for part in (table.columns, table.tags))
        model[name] = Part(arrays, columns, components, [column.type for column in table.columns.values()], proofs)
    return model


def _computed_columns(table: Table, arrays: Arrays, is_tagged: bool, proofs: ProofLanes | None) -> list[Any]:
    """The columns of a relation that the host has computed, its rows sorted, and those of its tags."""
    columns = [table.column(c) for c in range(len(table.types))]
    order = np.lexsort(columns[::-1]) if columns else np.arange(table.size)
    rows = columns or [np.zeros(table.size, np.int64)]
    tags = parts_of(table.tags[: table.size]) if is_tagged else ()
    if proofs is not None:
        tags = (proofs.lanes_of(table.tags[: table.size]),)
    return [arrays.constant(column[order], str(column.dtype), len(order)) for column in (*rows, *tags)]


def _prepared(
    ram: m.Ram,
    typed: TypedSemiring | ProofForm | None,
    host: _Host,
    at_once: AtOnce | None,
    names: Iterable[str] | None,
    there: frozenset[str],
    may_cut: bool,
) -> tuple[dict[str, Any], Prepared]:
    """The tables of a program's relations and what runs it, from an earlier run where nothing in it is of that run."""
    wanted = None if names is None else tuple(names)
    saved, key = ram.plans.setdefault("apm", _Programs()), (typed, at_once, wanted, there, may_cut)
    entry = saved.get(key)
    if entry is None:
        tables = lower(ram, typed, host, at_once, there, may_cut)
        tables = {name: tables[name] for name in (tables if wanted is None else wanted)}
        entry = tables, Prepared([column for table in tables.values() for column in table.all])
        if not host.is_bound:
            saved[key] = entry
    return entry


class _Programs(dict):
    """Prepared programs that later runs use again; a copy begins without any."""

    def __reduce__(self) -> tuple:
        return _Programs, ()


def _fact_tags(tags: ColumnTags, variables: np.ndarray) -> Any:
    values, random = tags.one(len(variables)), variables >= 0
    if random.any():
        values[random] = tags.fact_tags(variables[random])
    return values


def _is_impossible(facts: FactStore, variables: np.ndarray) -> np.ndarray:
    """Facts [row] of probability 0, which are not there where tags are ignored."""
    is_impossible = np.zeros(len(variables), bool)
    random = np.flatnonzero(variables >= 0)
    numbers = variables[random]
    is_zero = np.asarray(facts.random.probabilities)[numbers] == 0.0
    is_impossible[random] = is_zero & (facts.random.kinds_of(numbers) == VALUE)
    return is_impossible


class _Host:
    """What calls are run by."""

    def __init__(self, ram: m.Ram, facts: FactStore, algebra: Untagged | SemiringTags, queries: Queries):
        self.ram = ram
        self.symbols, self.random, self.mode, self.queries = facts.symbols, facts.random, algebra, queries
        self.is_bound = False

    def word(self, constant: Const) -> int:
        # Texts and terms have numbers in the tables of a run.
        self.is_bound |= not (constant.type.is_integer or constant.type.family in ("float", "bool", "char"))
        return int(word_of(constant.value, constant.type, self.symbols))

    def evaluate(
        self, expression: Expr, names: Sequence[str], gives: str, columns: Sequence[np.ndarray], count: int
    ) -> list[np.ndarray]:
        column_of = dict(zip(names, columns))
        if gives == "mask":
            return [arithmetic.condition(expression, column_of, count, self.symbols)]
        words, valid = arithmetic.evaluate(expression, column_of, count, self.symbols)
        if gives == "value":
            return [words]
        return [words, np.ones(count, bool) if valid is None else valid]

    def call(
        self,
        node: m.Generate | m.RuleProbability,
        names: tuple[Sequence[str], Sequence[str]],
        columns: Sequence[np.ndarray],
        count: int,
    ) -> list[np.ndarray]:
        """Rows with the answers of a foreign predicate, or times a coin."""
        read, made = names
        tags = self._tags(columns[len(read) :])
        batch = Batch(count, dict(zip(read, columns)), tags)
        if isinstance(node, m.RuleProbability):
            answers = list(drawn(self.queries, batch, node))
        else:
            answers = list(generate(self.queries, batch, node, PREDICATES[node.predicate], self.queries.foreign))
        rows = [np.concatenate([np.empty(0, np.int64), *(b.columns[name] for b in answers)]) for name in made]
        if isinstance(self.mode, Untagged):
            return rows or [np.zeros(sum(b.count for b in answers), np.int64)]
        return [*rows, *parts_of(self.mode.concatenate([self.mode.one(0), *(b.tags for b in answers)]))]

    def aggregate(
        self,
        rule: AggregateRule,
        types: tuple[ValueType, ...],
        widths: Sequence[int],
        columns: Sequence[np.ndarray],
        count: int,
    ) -> list[np.ndarray]:
        body, *others = widths
        tables = [self._table(rule.body, columns[:body])]
        if others:
            assert rule.groups is not None
            tables.append(self._table(rule.groups, columns[body:]))
        groups = tables[1] if others else None
        context = Context(self.mode, self.symbols, self.random)
        rows, count, tags = run_aggregate(rule, types, tables[0], groups, context)
        rows = rows if types else [np.zeros(count, np.int64)]
        if isinstance(self.mode, Untagged):
            return rows
        return [*rows, *parts_of(self.mode.one(count) if tags is None else tags)]

    def _table(self, name: str, columns: Sequence[np.ndarray]) -> Table:
        """A table of the machine with these rows."""
        types = self.ram.relations[name].types
        count, width = len(columns[0]), max(len(types), 1)
        table = Table(name, types, None if isinstance(self.mode, Untagged) else self.mode.empty)
        ids = table.insert(columns[: len(types)], count)
        if not isinstance(self.mode, Untagged):
            table.tags[ids] = self._tags(columns[width:])
        table.visible_size = table.size
        return table

    def _tags(self, components: Sequence[np.ndarray]) -> Any:
        return None if isinstance(self.mode, Untagged) else column_of(components)
