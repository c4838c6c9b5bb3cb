"""The kernel of a store, planned for the layouts of its tables and saved.

A store that has seen many rows runs as one kernel, unless one of its steps has none: one that computes with texts, or
with functions of floats that libraries round differently, or, for tags that are no semiring's, with negation. Then the
whole store runs over columns, and the plan says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from derivable.algebra.expr.functions import bitcast, cast, not_equal, where
from derivable.algebra.expr.nodes import Apply, Argument, Expr, in_order
from derivable.algebra.expr.optional import TRUE as ALWAYS
from derivable.algebra.expr.types import FLOATS
from derivable.algebra.semiring import TypedSemiring
from derivable.core.lazy import later
from derivable.datalog.foreign.standard import predicate_of
from derivable.datalog.fused import kernel_steps
from derivable.datalog.fused.state import State
from derivable.datalog.ram import nodes as m
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars import nodes as scalars
from derivable.datalog.scalars.nodes import Const, Var
from derivable.datalog.tables.index import Index
from derivable.datalog.tables.ordered_index import LEAST, is_moved, ordered_index
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.trie import trie
from derivable.datalog.tags.tags import SemiringTags, Untagged
from derivable.datalog.values.values import ValueType, word_of
from derivable.kernel import build

if TYPE_CHECKING:
    from derivable.datalog.fused import emit
    from derivable.datalog.kernels.row_sets import SetForm
else:
    emit = later("derivable.datalog.fused.emit")

# Joins of a kernel, one loop inside the other.
MOST_LOOPS = 8


class _Unsupported(Exception):
    """A step that kernels have not, and why."""


@dataclass(frozen=True)
class Read:
    """How a step reads a relation: row by row, by an index over `keys`, ordered by column `by` if there is one, by a
    trie of these, or by the set of its rows."""

    scan: m.Scan
    keys: tuple[int, ...] | None = None
    by: int | None = None
    is_set: bool = False
    is_trie: bool = False

    def of(self, state: State, relation: str) -> tuple[Table, Index | None]:
        """The table of a relation and its index."""
        table = state.tables[relation]
        if self.is_set:
            table.row_set.update(table)
        if self.keys is None:
            return table, None
        if self.by is None:
            return table, table.index(self.keys, relation in state.complete)
        if self.is_trie:
            return table, trie(table, self.keys, self.by)
        index = ordered_index(table, self.keys, self.by)
        index.is_static = True
        return table, index

    def layout(self, table: Table, index: Index | None) -> tuple:
        """What a kernel depends on."""
        form = table.row_set.form if self.is_set else None
        return table.word_type.char, form, index and index.kind, table.tags is None


@dataclass(frozen=True)
class StorePlan:
    """The plan of a store for some layouts, as the program keeps it.

    words    constants
    reads    step -> how it reads a relation; layouts of these, in this order
    counted  the operators whose rows the kernel counts, in the order of `kernel_steps.Plan.counted`
    insert_kernels  form of sets -> the kernel that inserts into them: a plan takes long to look up
    """

    plan: kernel_steps.Plan
    words: tuple[Const | int, ...]
    reads: dict[int, Read]
    layouts: tuple
    counted: tuple[tuple[m.Operator, ...], ...]
    insert_kernels: dict[SetForm | None, emit.RuleKernel] = field(default_factory=dict)

    @cached_property
    def is_worth_columns(self) -> bool:
        """Whether a kernel that writes columns is faster than columns: of one relation it is not."""
        return any(
            isinstance(step, (kernel_steps.Match, kernel_steps.Probe, kernel_steps.Intersect, kernel_steps.Count))
            for step in self.plan.steps
        )

    @cached_property
    def scans(self) -> dict[int, m.Scan]:
        return {step: read.scan for step, read in self.reads.items()}

    def bind(self, state: State) -> BoundPlan | None:
        """The same for the tables of a run; None if they have other layouts."""
        made = self.bound(state)
        layouts = tuple(read.layout(*made.reads[step]) for step, read in self.reads.items())
        return made if layouts == self.layouts else None

    def bound(self, state: State, instead: Mapping[int, Any] = MappingProxyType({})) -> BoundPlan:
        """The same for tables that have these layouts.

        instead  the scans and constants of another store of the same form, by the ids of those of this one
        """
        relations = {step: instead.get(id(read.scan), read.scan).relation for step, read in self.reads.items()}
        reads = {step: read.of(state, relations[step]) for step, read in self.reads.items()}
        constants = (w if isinstance(w, int) else instead.get(id(w), w) for w in self.words)
        words = [w if isinstance(w, int) else word_of(w.value, w.type, state.symbols) for w in constants]
        return BoundPlan(self, self.plan, words, reads)


@dataclass
class BoundPlan:
    """A store's kernel for the tables of a run, and the layouts that these have.

    reads    step -> its table and index
    """

    store_plan: StorePlan
    plan: kernel_steps.Plan
    words: list[int]
    reads: dict[int, tuple[Table, Index | None]]

    def update_indexes(self) -> None:
        for _, index in self.reads.values():
            if index is not None:
                index.update()


def layout_of(table: Table) -> kernel_steps.Layout:
    """The layout of a table whose set is queried."""
    return kernel_steps.Layout(table.width, str(table.word_type), table.row_set.form)


def _log_of(table: Table) -> kernel_steps.Layout:
    """The layout of a table that is read row by row."""
    return kernel_steps.Layout(table.width, str(table.word_type), None)


def plan(state: State, store: m.Store, has_factors: bool = False) -> BoundPlan | str:
    """The kernel of a store, or why it has none.

    has_factors  whether tags that are no semiring's are written as factors, not as numbers of rows
    """
    planner = _Planner(state, store, has_factors)
    # Stores are saved with the program; one that is not may leave its number to another one.
    key = "kernels", id(store), planner.tags, state.counts is None
    owner, plans = state.plans.setdefault(key, (store, []))
    if owner is not store:
        _, plans = state.plans[key] = store, []
    for one in plans:
        if (bound := one.bind(state)) is not None:
            return bound
    try:
        made = planner.plan()
    except _Unsupported as unsupported:
        return str(unsupported)
    if planner.may_be_shared:
        plans.append(made.store_plan)
    return made


# Operators whose operands are conditions, and those that compare.
_CONNECTIVES, _COMPARISONS = {"&&", "||", "!"}, {"==", "!=", "<", "<=", ">", ">="}
# What is computed with floats alike everywhere: rounded exactly, as no power or logarithm is.
_EXACT = {
    *("add", "subtract", "saturating_add", "saturating_subtract", "multiply", "divide", "negate", "minimum", "maximum"),
    *("equal", "not_equal", "less", "less_equal", "where", "cast", "saturating_cast", "abs", "sign", "floor", "ceil"),
    "truncate_remainder",
}


def is_connective(e: scalars.Apply) -> bool:
    """Whether the operands of an operator are conditions."""
    return e.operator in _CONNECTIVES


def compared_word(e: scalars.Apply) -> Const | None:
    """The constant of a comparison that is a word of its kernel, so that rules that differ in it share that."""
    constants = [operand for operand in e.operands if isinstance(operand, Const)]
    if e.operator not in _COMPARISONS or len(constants) != 1:
        return None
    (constant,) = constants
    return constant if constant.type.is_integer and not constant.type.is_wide else None


class _Planner:
    def __init__(self, state: State, store: m.Store, has_factors: bool):
        self.state, self.store, self.mode = state, store, state.mode
        self.registers: dict[str, Argument] = {}
        self.words: list[Const | int] = []
        self.steps: list[kernel_steps.Step] = []
        self.reads: dict[int, tuple[Table, Index | None]] = {}
        self.recipes: dict[int, Read] = {}
        self.layouts: list[tuple] = []
        # Factors of coins are tables of the run alone.
        self.may_be_shared = True
        self.tags: TypedSemiring | str | None = "factors" if has_factors else "rows"
        if isinstance(self.mode, Untagged):
            self.tags = None
        elif isinstance(self.mode, SemiringTags):
            self.tags = self.mode.typed

    def plan(self) -> BoundPlan:
        """Raises _Unsupported where a step or a term has no kernel."""
        project = self.store.query
        nodes, number = project.operators, 0
        marks: dict[int, tuple[m.Operator, ...]] = {}
        while number < len(nodes):
            # Consecutive joins on one more variable are one step.
            common = self.intersected(nodes, number)
            count = max(1, len(common))
            if count > 1:
                self.intersect(common, project.later[number + count - 1])
            else:
                self.step(nodes[number], project.later[number])
            if kernel_steps.num_loops(self.steps) > MOST_LOOPS:
                raise _Unsupported(f"more than {MOST_LOOPS} joins")
            if self.state.counts is not None:
                marks[len(self.steps)] = (*marks.get(len(self.steps), ()), *nodes[number : number + count])
            number += count
        outputs = tuple(self.word(term) for term in project.terms)
        words = tuple(Argument(k, "int64", f"word{k}") for k in range(len(self.words)))
        made = kernel_steps.Plan(tuple(self.steps), outputs, words, self.tags, tuple(marks))
        store_plan = StorePlan(made, tuple(self.words), self.recipes, tuple(self.layouts), tuple(marks.values()))
        symbols = self.state.symbols
        values = [w if isinstance(w, int) else word_of(w.value, w.type, symbols) for w in self.words]
        return BoundPlan(store_plan, made, values, self.reads)

    # Terms

    def register(self, name: str, t: ValueType) -> Argument:
        assert name not in self.registers
        self.registers[name] = Argument(1000 + len(self.registers), "int64", f"r{len(self.registers)}")
        return self.registers[name]

    def constant(self, term: Const) -> Argument:
        self.words.append(term)
        return Argument(len(self.words) - 1, "int64", f"word{len(self.words) - 1}")

    def term(self, term: Var | Const) -> Expr:
        return self.registers[term.name] if isinstance(term, Var) else self.constant(term)

    def value(self, e: Any) -> tuple[Expr, Expr, Expr]:
        """(value, whether it is there, whether it is there and true) of an expression of scalars."""
        translated = arithmetic.translate(e)
        if any(entry.function is not None for entry in translated.inputs):
            raise _Unsupported("it calls a function that works on columns")
        result = translated.result
        nodes = in_order((result.value, result.valid))
        for node in nodes:
            is_float = any(each.dtype in FLOATS for each in (node, *node.operands))
            if isinstance(node, Apply) and is_float and node.operation not in _EXACT:
                raise _Unsupported(f"it computes {node.operation} of floats, which libraries round differently")
        values: dict[Argument, Expr] = {}
        for node in nodes:
            if isinstance(node, Argument):
                register = self.registers[translated.inputs[node.index].variable]
                values[node] = _value_of(register, node.dtype)
        holds = result.only_if(result.value).valid if result.value.dtype == "bool" else ALWAYS
        value, valid, holds = build.substitute((result.value, result.valid, holds), values)
        return value, valid, holds

    def with_words(self, e: Any) -> Any:
        """A condition that compares with words instead of integers: rules that differ in these share a kernel."""
        if not isinstance(e, scalars.Apply):
            return e
        operands = e.operands
        if is_connective(e):
            return replace(e, operands=tuple(map(self.with_words, operands)))
        constant = compared_word(e)
        if constant is None:
            return e
        name = f"#word {len(self.words)}"
        self.registers[name] = self.constant(constant)
        word = Var(name, constant.type)
        return replace(e, operands=tuple(word if operand is constant else operand for operand in operands))

    def word(self, e: Any) -> Expr:
        if isinstance(e, (Var, Const)):
            return self.term(e)
        value, valid, _ = self.value(e)
        if valid is not ALWAYS:
            self.steps.append(kernel_steps.Condition(valid))
        return emit.word_of_value(value)

    # Steps

    def step(self, node: m.Operator, needed: frozenset[str]) -> None:
        match node:
            case m.Scan():
                table, _ = self.read(Read(node))
                checks, repeats, takes = self.columns(node, needed)
                # With tags, `State.rows_of` gives row numbers for parts of a relation.
                is_listed = node.part != "all" and not isinstance(self.mode, Untagged)
                self.steps.append(kernel_steps.Rows(_log_of(table), is_listed, checks, repeats, takes))
            case m.Join():
                self.join(node, needed)
            case m.Difference(right=right):
                if self.tags == "rows":
                    raise _Unsupported("its tags are no scalars, and it negates")
                table, _ = self.read(Read(right, is_set=True))
                terms = tuple(self.term(t) for t in right.terms if t is not None)
                certain = self.tags is None and table.tags is not None
                self.steps.append(kernel_steps.Probe(layout_of(table), terms, True, False, certain))
            case m.Select(condition=condition):
                self.steps.append(kernel_steps.Condition(self.value(self.with_words(condition))[2]))
            case m.Extend(variable=v, expression=e):
                value = self.word(e)
                self.steps.append(kernel_steps.Define(self.register(v.name, v.type), value))
            case m.Generate():
                self.integers(node)
            case m.RuleProbability():
                self.coin(node)
            case _:
                raise _Unsupported("an operator has no kernel")

    def read(self, read: Read) -> tuple[Table, Index | None]:
        source = read.of(self.state, read.scan.relation)
        self.recipes[len(self.steps)], self.reads[len(self.steps)] = read, source
        self.layouts.append(read.layout(*source))
        return source

    def columns(self, scan: m.Scan, needed: frozenset[str]) -> tuple[tuple, tuple, tuple]:
        """(what columns must hold, pairs that must be equal, what to take) of a scan; names are bound."""
        bindings = m.bindings(scan, self.registers)
        checks = tuple((c, self.term(term)) for c, term in bindings.keys)
        types = {term.name: term.type for term in scan.terms if isinstance(term, Var)}
        takes = tuple((c, self.register(name, types[name])) for name, c in bindings.fresh.items() if name in needed)
        return checks, bindings.repeats, takes

    def join(self, node: m.Join, needed: frozenset[str]) -> None:
        scan = node.right
        within = () if node.range is None else self.bounds_in(node.range, scan)
        keys, repeats, takes = self.columns(scan, needed)
        plain = self.tags is None
        is_stamped = scan.part == "stable" and not plain
        if keys and len(keys) == len(scan.terms):
            table, _ = self.read(Read(scan, is_set=True))
            terms = tuple(term for _, term in keys)
            self.steps.append(kernel_steps.Probe(layout_of(table), terms, False, is_stamped, False))
            return
        columns = tuple(c for c, _ in keys)
        table, index = self.read(Read(scan, columns, None if node.range is None else node.range.column))
        assert index is not None
        only_exists = plain and not takes and not repeats
        layout = kernel_steps.Layout(table.width, "int64", None) if index.kind in ("dense", "range") else _log_of(table)
        self.steps.append(kernel_steps.Match(layout, index.kind, keys, repeats, takes, only_exists, is_stamped, within))

    def intersected(self, nodes: Sequence[m.Operator], number: int) -> list[m.Scan]:
        """The scans of the joins from an index on that are about one more variable, whose values are intersected."""
        scans: list[m.Scan] = []
        variable: str | None = None
        for node in nodes[number:]:
            if self.state.counts is not None or not isinstance(node, m.Join):
                break
            scan, keys = node.right, m.bindings(node.right, self.registers)
            names = {term.name for term in scan.terms if isinstance(term, Var)}.difference(self.registers)
            is_one = len(keys.fresh) == 1 and not keys.repeats and keys.keys and node.range is None
            # The tags of all rows count.
            is_one = is_one and (self.tags is None or len(keys.keys) + 1 == len(scan.terms))
            if not is_one or not self.has_trie(scan) or (variable is not None and names != {variable}):
                break
            (variable,) = names
            scans.append(scan)
        return scans

    def has_trie(self, scan: m.Scan) -> bool:
        """Whether a relation has all its rows, in a table."""
        is_table = isinstance(self.state.tables[scan.relation], Table)
        return is_table and scan.part == "all" and scan.relation in self.state.complete

    def intersect(self, scans: Sequence[m.Scan], needed: frozenset[str]) -> None:
        """Steps for the values that these have in common for one variable that is not bound yet."""
        bindings = [m.bindings(scan, self.registers) for scan in scans]
        keys = [tuple(self.term(term) for _, term in one.keys) for one in bindings]
        ((name, column),) = bindings[0].fresh.items()
        term = scans[0].terms[column]
        assert isinstance(term, Var)
        register = self.register(name, term.type) if name in needed or self.tags is not None else None
        for number, (scan, one, terms) in enumerate(zip(scans, bindings, keys), 1):
            (by,) = one.fresh.values()
            _, index = self.read(Read(scan, tuple(c for c, _ in one.keys), by, is_trie=True))
            assert index is not None
            count = len(scans) if number == 1 else 0
            self.steps.append(
                kernel_steps.Intersect(index.kind, terms, count, register if number == len(scans) else None)
            )

    def bounds_in(self, interval: m.Range, scan: m.Scan) -> tuple[tuple[str, Expr], ...]:
        """The bounds of a range as an ordered index takes them; it has one run if the relation does not change."""
        if scan.relation not in self.state.complete or not isinstance(self.state.tables[scan.relation], Table):
            raise _Unsupported("it joins by an ordered index of a relation that still grows")
        bounds = []
        for bound in interval.bounds:
            value, valid, _ = self.value(bound.value)
            if valid is not ALWAYS:
                self.steps.append(kernel_steps.Condition(valid))
            word = emit.word_of_value(value)
            if bound.value.type.family == "float":
                word = where(word < 0, word ^ int(~LEAST), word)
            bounds.append((bound.operator, word + int(LEAST) if is_moved(bound.value.type) else word))
        return tuple(bounds)

    def integers(self, node: m.Generate) -> None:
        """The integers from one input to the other; other predicates run over columns."""
        closed, output = predicate_of(node.predicate).closed, node.outputs[0] if node.outputs else None
        if closed is None or output is None or node.inputs[0].type.is_wide:
            raise _Unsupported(f"the predicate {node.predicate} works on columns")
        low, low_valid, _ = self.value(node.inputs[0])
        high, high_valid, _ = self.value(node.inputs[1])
        for valid in (low_valid, high_valid):
            if valid is not ALWAYS:
                self.steps.append(kernel_steps.Condition(valid))
        if isinstance(output, Const) or output.name in self.registers:
            value = self.value(output)[0]
            inside = (low <= value) & (value <= high if closed else value < high)
            self.steps.append(kernel_steps.Condition(~inside if node.negated else inside))
            return
        first, last = emit.word_of_value(low), emit.word_of_value(high)
        there = low <= high if closed else low < high
        number = where(there, last - first + (1 if closed else 0), 0)
        self.steps.append(kernel_steps.Count(self.register(output.name, output.type), first, number))

    def coin(self, node: m.RuleProbability) -> None:
        """A coin of which no tag says whose it is is a factor; other ones are drawn over columns."""
        probability = node.probability
        if not isinstance(probability, Const) or probability.value == 0.0 or isinstance(self.tags, str):
            raise _Unsupported("its random facts are drawn over columns")
        if self.tags is None:
            return
        self.may_be_shared = False
        table = self.state.coins.factor(node, probability.value, self.mode)
        if table is None:
            raise _Unsupported("its random facts are drawn over columns")
        self.reads[len(self.steps)] = table, None
        self.steps.append(kernel_steps.Factor())


def _value_of(word: Expr, dtype: Any) -> Expr:
    """The value of a scalar type that a word is."""
    if dtype in FLOATS:
        return cast(bitcast(word, "float64"), dtype)
    return not_equal(word, 0) if dtype == "bool" else cast(word, dtype)
