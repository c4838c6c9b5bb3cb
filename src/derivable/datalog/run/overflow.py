"""Integers of rules that leave their types, of which a run warns once its relations are complete.

Sums and differences stop at the limits of their type and products wrap around, in kernels and over columns alike, and
neither looks at what it cuts. So the rules are looked at afterwards. The least and the greatest value of each column
bound every expression, in Python's integers, which is all that most runs need. Where these bounds reach beyond a type,
bounds of each row of each relation that is read follow, and the rule is run once more over the few rows for which they
still do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from derivable.core.diagnostics import Span, warn
from derivable.core.progress import Deadline
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.nodes import Filter, Generate
from derivable.datalog.rules.simplify import substitute
from derivable.datalog.run.queries import Queries
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.exact import EXACT, exact_value, leaves_type
from derivable.datalog.scalars.nodes import NOWHERE, Apply, Const, Expr, Node, Var, children, walk
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.ground_graph import negate
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import Algebra, GraphTags, Untagged
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import BOOL, TYPES, ValueType, show_column

# The least and the greatest value: two integers, or columns [row] of floats.
Bounds = tuple[Any, Any]
# Batches of the rows of a rule in which an integer that left its type is looked for, to be shown.
MOST_BATCHES = 64
_FORMS = {"neg": "-({})", "$abs": "$abs({})", "$pow": "$pow({}, {})"}
# Numbers of proofs and of probabilities have no part in this: rules are read as if they had none.
_UNTAGGED = Untagged()


@dataclass(frozen=True)
class Look:
    """An expression that may leave its type, over the columns of a rule.

    store  the rule, whose rows are those of the operators on which the value does not depend
    part   the expression, of integers, whose operator may leave their type
    """

    store: m.Store
    part: Apply

    @cached_property
    def scans(self) -> tuple[tuple[int, m.Scan], ...]:
        """The operators that bind variables to columns, each with its position."""
        operators = enumerate(self.store.query.operators)
        return tuple((at, scan) for at, node in operators if (scan := _bound_scan(node)) is not None)

    @cached_property
    def of_columns(self) -> Apply:
        """The expression over columns of relations."""
        known: dict[str, Expr] = {}
        for node in self.store.query.operators:
            if isinstance(node, m.Extend):
                known[node.variable.name] = substitute(node.expression, known)
        return substitute(self.part, known)  # type: ignore[return-value]

    @cached_property
    def reads(self) -> tuple[tuple[str, list[tuple[int, Var]]], ...]:
        """The relations of the scans, each with those of its columns that the expression depends on."""
        names = {part.name for part in walk(self.of_columns) if isinstance(part, Var)}
        return tuple((scan.relation, [one for one in _columns(scan) if one[1].name in names]) for _, scan in self.scans)


def looks_of(ram: m.Ram, number: int) -> tuple[Look, ...]:
    """The expressions of a stratum's rules that may leave their types."""
    key = "overflow", number
    looks = ram.plans.get(key)
    if looks is None:
        stores = (one for one in ram.strata[number].full if isinstance(one, m.Store))
        looks = ram.plans[key] = tuple(look for store in stores for look in _looks(store))
    return looks


def _looks(store: m.Store) -> Iterator[Look]:
    operators = store.query.operators
    known: dict[str, Expr] = {}
    whole: list[tuple[m.Operator | None, Node]] = []
    for node in operators:
        if isinstance(node, m.Extend):
            known[node.variable.name] = substitute(node.expression, known)
            whole.append((None, known[node.variable.name]))
        elif isinstance(node, m.Select | m.Generate):
            whole += [(node, substitute(one, known)) for one in _expressions(node)]
    whole += [(None, substitute(term, known)) for term in store.query.terms]
    seen: set[tuple[Apply, Span]] = set()
    for tested, expression in whole:
        for part, guards in _guarded(expression, ()):
            if _may_leave(part) and (part, part.span) not in seen:
                seen.add((part, part.span))
                yield Look(_reduced(store, part, tested, guards), part)


def _guarded(e: Node, guards: tuple[Filter, ...]) -> Iterator[tuple[Any, tuple[Filter, ...]]]:
    """The parts of an expression, and the conditions under which their values are taken."""
    yield e, guards
    if isinstance(e, Apply) and e.operator == "if":
        condition, then, otherwise = e.operands
        yield from _guarded(condition, guards)
        yield from _guarded(then, (*guards, Filter(condition)))
        yield from _guarded(otherwise, (*guards, Filter(Apply("!", (condition,), BOOL))))
    else:
        for part in children(e):
            yield from _guarded(part, guards)


def _expressions(node: Filter | Generate) -> tuple[Expr, ...]:
    return (node.condition,) if isinstance(node, Filter) else node.inputs


def _may_leave(node: Node) -> bool:
    return isinstance(node, Apply) and node.operator in EXACT and node.type.is_integer and node.span is not NOWHERE


def _reduced(store: m.Store, part: Apply, tested: m.Operator | None, guards: tuple[Filter, ...]) -> m.Store:
    """The rule with the operands of `part` as terms and these conditions, without the one that it stands in."""
    operators = []
    for node in store.query.operators:
        if node is tested and isinstance(node, m.Select):
            continue
        if isinstance(node, m.Join):
            node = replace(node, range=None, right=replace(node.right, part="all"))
        elif isinstance(node, m.Scan):
            node = replace(node, part="all")
        if not isinstance(node, m.RuleProbability):
            operators.append(node)
    return m.Store(store.relation, m.Project((*operators, *guards), part.operands), store.origin)


# Bounds

_known_extremes: WeakKeyDictionary[Table, dict[int, tuple[int, int, int]]] = WeakKeyDictionary()


def _extreme(table: Table, column: int) -> tuple[int, int]:
    """The least and the greatest word of a column. Of a table that grows, what is new is looked at."""
    known = _known_extremes.setdefault(table, {})
    rows, low, high = known.get(column, (0, 0, 0))
    if rows != table.size:
        rows = 0 if rows > table.size else rows
        words = table.view(column, slice(rows, table.size)) if table.has_log else table.column(column)
        least, most = int(words.min()), int(words.max())
        low, high = (min(low, least), max(high, most)) if rows else (least, most)
        known[column] = table.size, low, high
    return low, high


def _bounds_of_words(low: Any, high: Any, t: ValueType) -> Bounds:
    """Bounds of the values that words between these stand for."""
    if t.bits < 64 or t.family == "signed":
        # Large integers of 128 bits are numbered.
        is_plain = (low > -(1 << 62)) & (high < 1 << 62) if t.is_wide else True
    else:
        is_plain = (low >= 0) & (high < 1 << 62 if t.is_wide else True)
    least, most = t.limits
    if not isinstance(low, np.ndarray):
        return (low, high) if is_plain else (least, most)
    return np.where(is_plain, low, float(least)), np.where(is_plain, high, float(most))


class _Bounds:
    """Bounds of expressions by those of their variables; `beyond` says where the one that is looked for may leave its
    type. Integers are exact; columns [row] are of floats."""

    def __init__(self, variables: Mapping[str, Bounds], of_rows: bool):
        self.variables, self.of_rows = variables, of_rows
        self.lesser, self.greater, self.chosen = (np.minimum, np.maximum, np.where) if of_rows else (min, max, _chosen)

    def limits(self, t: ValueType) -> Bounds:
        if not t.is_integer:
            return -np.inf, np.inf
        least, most = t.limits
        return (float(least), float(most)) if self.of_rows else (least, most)

    def beyond(self, part: Apply) -> Any:
        """Whether, or where [row], a value may be beyond the limits of its type."""
        low, high = self.exact(part)
        least, most = part.type.limits
        # Floats have the integers of up to 53 bits.
        slack = 2 ** (part.type.bits - 50) if self.of_rows and part.type.bits > 32 else 0
        return (low < least + slack) | (high > most - slack)

    def exact(self, e: Apply) -> Bounds:
        """Bounds of a value if its type had no limits."""
        bounds = [self.of(operand) for operand in e.operands]
        (low, high), *others = bounds
        match e.operator:
            case "+" | "+!":
                return low + others[0][0], high + others[0][1]
            case "-" | "-!":
                return low - others[0][1], high - others[0][0]
            case "*":
                products = low * others[0][0], low * others[0][1], high * others[0][0], high * others[0][1]
                return reduce(self.lesser, products), reduce(self.greater, products)
            case "neg":
                return -high, -low
            case "$abs":
                return self.greater(0, self.greater(low, -high)), self.greater(abs(low), abs(high))
            case "$pow":
                size = self.greater(self.greater(abs(low), abs(high)), 1)
                with np.errstate(over="ignore"):
                    most = np.power(size, others[0][1]) if self.of_rows else _power(size, others[0][1])
                return self.chosen(low < 0, -most, 0), most
        raise AssertionError(e.operator)

    def of(self, e: Expr) -> Bounds:
        if isinstance(e, Const):
            if not e.type.is_integer:
                return self.limits(e.type)
            return (float(e.value), float(e.value)) if self.of_rows else (int(e.value), int(e.value))
        if isinstance(e, Var):
            return self.variables.get(e.name, self.limits(e.type))
        low, high = self.limits(e.type)
        if not e.type.is_integer:
            return low, high
        if e.operator in EXACT or e.operator in ("+!", "-!"):
            lower, upper = self.exact(e)
            if e.operator in ("*", "$pow"):
                # What wraps around may be anything.
                return self.if_it_fits(lower, upper, low, high)
        elif e.operator == "if":
            (a, b), (c, d) = self.of(e.operands[1]), self.of(e.operands[2])
            lower, upper = self.lesser(a, c), self.greater(b, d)
        elif e.operator in ("$min", "$max"):
            lows, highs = zip(*map(self.of, e.operands))
            one_of = self.lesser if e.operator == "$min" else self.greater
            lower, upper = reduce(one_of, lows), reduce(one_of, highs)
        elif e.operator in ("%", "/"):
            (a, b), (c, d) = map(self.of, e.operands)
            most = self.greater(abs(a), abs(b))
            if e.operator == "%":
                most = self.lesser(most, self.greater(abs(c), abs(d)))
            elif isinstance(e.operands[1], Const):
                most = most // self.greater(abs(c), 1)
            is_positive = (a >= 0) & (True if e.operator == "%" else c >= 0)
            lower, upper = self.chosen(is_positive, 0, -most), most
        elif e.operator == "cast" and e.operands[0].type.is_integer:
            return self.if_it_fits(*self.of(e.operands[0]), low, high)
        else:
            return low, high
        return tuple(self.greater(low, self.lesser(bound, high)) for bound in (lower, upper))  # type: ignore[return-value]

    def if_it_fits(self, lower: Any, upper: Any, low: Any, high: Any) -> Bounds:
        """These bounds where they are within the limits, else the limits."""
        fits = (lower >= low) & (upper <= high)
        return self.chosen(fits, lower, low), self.chosen(fits, upper, high)


def _chosen(condition: bool, then: int, otherwise: int) -> int:
    return then if condition else otherwise


def _power(base: int, exponent: int) -> int:
    """The power, or a bound of it beyond every type, of a base of at least 1."""
    return base ** max(exponent, 0) if base == 1 or base.bit_length() * exponent <= 512 else 1 << 256


# Looking


def warn_of_overflow(
    ram: m.Ram, number: int, tables: Mapping[str, Table], mode: Algebra, symbols: SymbolTable, watch: Deadline
) -> None:
    """Warn once of each expression of a stratum that has left its type in this run.

    tables  of the relations that are complete
    """
    looks = looks_of(ram, number)
    if not looks:
        return
    said = ram.plans.setdefault("said", set())
    for look in looks:
        if look.part.span in said:
            continue
        example = _Looking(look, tables, mode, symbols, watch).example()
        if example is not None:
            said.add(look.part.span)
            _say(ram, look, example)


class _Looking:
    def __init__(self, look: Look, tables: Mapping[str, Table], mode: Algebra, symbols: SymbolTable, watch: Deadline):
        self.look, self.tables, self.mode, self.symbols, self.watch = look, tables, mode, symbols, watch

    def example(self) -> tuple[tuple[int, ...], int] | None:
        """Operands whose value is beyond the type, and what it became; None where there are none."""
        bounds: dict[str, Bounds] = {}
        for relation, columns in self.look.reads:
            table = self.tables.get(relation)
            if table is None or not table.size:
                # What a run does not have, it has not computed.
                return None
            for column, term in columns:
                low, high = _bounds_of_words(*_extreme(table, column), term.type)
                before = bounds.get(term.name, (low, high))
                bounds[term.name] = max(low, before[0]), min(high, before[1])
        return self.searched(bounds) if _Bounds(bounds, of_rows=False).beyond(self.look.of_columns) else None

    def searched(self, bounds: Mapping[str, Bounds]) -> tuple[tuple[int, ...], int] | None:
        operators, tables = list(self.look.store.query.operators), dict(self.tables)
        bounds = {name: (float(low), float(high)) for name, (low, high) in bounds.items()}
        for (position, scan), (_, columns) in zip(self.look.scans, self.look.reads):
            if not columns:
                continue
            table = tables[scan.relation]
            words = {term.name: table.column(column) for column, term in columns}
            rows = {term.name: _bounds_of_words(words[term.name], words[term.name], term.type) for _, term in columns}
            beyond = _Bounds({**bounds, **rows}, of_rows=True).beyond(self.look.of_columns)
            rows_left = np.flatnonzero(np.broadcast_to(beyond, table.size))
            if not len(rows_left):
                return None
            if len(rows_left) < table.size:
                name = f"{scan.relation} {position}"
                tables[name] = _some(table, rows_left, name)
                changed = replace(scan, relation=name)
                operators[position] = changed if isinstance(operators[position], m.Scan) else m.Join(changed)
        for position, node in enumerate(operators):
            if isinstance(node, m.Difference):
                name = f"{node.right.relation} {position}"
                tables[name] = self.blocking(tables[node.right.relation], name)
                operators[position] = m.Difference(replace(node.right, relation=name))
        left = [node for node in operators if _is_read(node)]
        if any(isinstance(node, m.Generate) and node not in left for node in operators):
            bound = {name for node in left for name in m.binds(node)}
            if any(not names_of(one) <= bound for one in (*left, *self.look.part.operands)):
                return None
        query = m.Project(tuple(left), self.look.part.operands)
        queries = Queries(tables, _UNTAGGED, self.symbols, RandomFacts(), self.watch)
        for columns, _, _ in islice(queries.projected(query, query.steps), MOST_BATCHES):
            if (example := self.beyond(columns)) is not None:
                return example
        return None

    def blocking(self, table: Table, name: str) -> Table:
        """A table of the rows whose negation is nothing, whatever it is multiplied with."""
        if table.tags is None or isinstance(self.mode, Untagged):
            return table
        negated = (negate if isinstance(self.mode, GraphTags) else self.mode.negate)(table.tags[: table.size])
        blocks = negated == 0 if isinstance(self.mode, GraphTags) else self.mode.is_zero(negated)
        return _some(table, np.flatnonzero(blocks), name)

    def beyond(self, columns: list[np.ndarray]) -> tuple[tuple[int, ...], int] | None:
        part = self.look.part
        names = [f"'{k}" for k in range(len(columns))]
        bounds = {
            name: _bounds_of_words(words, words, one.type) for name, words, one in zip(names, columns, part.operands)
        }
        terms = tuple(Var(name, one.type) for name, one in zip(names, part.operands))
        beyond = _Bounds(bounds, of_rows=True).beyond(replace(part, operands=terms))
        rows = np.flatnonzero(np.broadcast_to(beyond, len(columns[0])))
        shown = [show_column(words[rows], t.type, self.symbols).tolist() for words, t in zip(columns, terms)]
        for row, values in zip(rows.tolist(), zip(*shown)):
            if leaves_type(part, values):
                one = {name: words[row : row + 1] for name, words in zip(names, columns)}
                word, _ = arithmetic.evaluate(replace(part, operands=terms), one, 1, self.symbols)
                return values, int(show_column(word, part.type, self.symbols)[0])
        return None


def _is_read(node: m.Operator) -> bool:
    """Whether a row is to pass an operator; predicates that have tags are not asked again."""
    return not isinstance(node, Generate) or (node.relation is None and not PREDICATES[node.predicate].is_tagged)


def names_of(node: Any) -> set[str]:
    """The names that an operator or expression reads and does not bind."""
    if isinstance(node, m.Unit | m.Scan | m.Join):
        return set()
    return m.reads(node) - set(m.binds(node)) if not isinstance(node, Var | Const | Apply) else m.names(node)


def _bound_scan(node: m.Operator) -> m.Scan | None:
    return None if isinstance(node, m.Difference) else m.scan_of(node)


def _columns(scan: m.Scan) -> list[tuple[int, Var]]:
    """The columns of integers that a scan binds or looks up."""
    return [(c, term) for c, term in enumerate(scan.terms) if isinstance(term, Var) and term.type.is_integer]


def _some(table: Table, rows: np.ndarray, name: str) -> Table:
    made = Table(name, table.types)
    made.insert_from(table, rows)
    made.visible_size = made.size
    return made


def _say(ram: m.Ram, look: Look, example: tuple[tuple[int, ...], int]) -> None:
    values, became = example
    part = look.part
    t, form = part.type, _FORMS.get(part.operator, f"{{}} {part.operator} {{}}")
    exact = exact_value(part, values)
    fits = (w for w in ("i64", "i128") if exact is not None and TYPES[w].limits[0] <= exact <= TYPES[w].limits[1])
    wide = next(fits, "f64")
    shown = ""
    if exact is not None:
        # Nobody reads thousands of digits, and Python writes no more than 4,300 of them.
        is_short, sign = exact.bit_length() <= 2 * TYPES["i128"].bits, "-" if exact < 0 else ""
        shown = f" is {exact}" if is_short else f" is beyond {sign}2^{exact.bit_length() - 1}"
    relation = look.store.relation.partition("#")[0]
    rule = f" in a rule of `{relation}`" if relation else ""
    end = "it becomes" if part.operator in ("*", "$pow") else "it stops at"
    warn(
        f"`{form.format(*values)}`{rule}{shown}, which {t} does not hold: {end} {became}",
        hint=f"cast what is computed with, as in `x as {wide}`, or declare the columns as {wide}",
        source=ram.source,
        text=ram.text,
        span=part.span,
    )
