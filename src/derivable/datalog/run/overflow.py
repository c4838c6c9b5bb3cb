"""Integers of rules that leave their types, of which a run warns once its relations are complete.

Sums and differences stop at the limits of their type and products wrap around, in kernels and over columns alike, and
neither looks at what it cuts. So the rules are looked at afterwards. The least and the greatest value of each column
bound every expression, which is all that most runs need. Where these bounds reach beyond a type, they are found again
for each row of each relation that is read, and the rule is run once more over the few rows for which they still do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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

# The least and the greatest value, as floats: two numbers, or columns [row].
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


def looks_of(ram: m.Ram, number: int) -> tuple[Look, ...]:
    """The expressions of a stratum's rules that may leave their types."""
    key = "overflow", number
    found = ram.plans.get(key)
    if found is None:
        stores = (one for one in ram.strata[number].full if isinstance(one, m.Store))
        found = ram.plans[key] = tuple(look for store in stores for look in _looks(store))
    return found


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


def _limits(t: ValueType) -> Bounds:
    return tuple(map(float, t.limits)) if t.is_integer else (-np.inf, np.inf)  # type: ignore[return-value]


def _bounds_of_words(low: Any, high: Any, t: ValueType) -> Bounds:
    """Bounds of the values that words between these stand for."""
    if t.bits < 64 or t.family == "signed":
        # Large integers of 128 bits are numbered.
        is_plain = (low > -(1 << 62)) & (high < 1 << 62) if t.is_wide else True
    else:
        is_plain = (low >= 0) & (high < 1 << 62 if t.is_wide else True)
    least, most = t.limits
    if not isinstance(low, np.ndarray):
        return (float(low), float(high)) if is_plain else (float(least), float(most))
    return np.where(is_plain, low, float(least)), np.where(is_plain, high, float(most))


class _Bounds:
    """Bounds of expressions by those of their variables; `beyond` says where the one that is looked for may leave its
    type."""

    def __init__(self, variables: Mapping[str, Bounds]):
        self.variables = variables

    def beyond(self, part: Apply) -> Any:
        """Whether, or where [row], a value may be beyond the limits of its type."""
        low, high = self.exact(part)
        least, most = part.type.limits
        # Floats have the integers of up to 53 bits.
        slack = 0 if part.type.bits <= 32 else 2 ** (part.type.bits - 50)
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
                return _hull(low * others[0][0], low * others[0][1], high * others[0][0], high * others[0][1])
            case "neg":
                return -high, -low
            case "$abs":
                return np.maximum(0.0, np.maximum(low, -high)), np.maximum(abs(low), abs(high))
            case "$pow":
                with np.errstate(over="ignore"):
                    most = np.power(np.maximum(np.maximum(abs(low), abs(high)), 1.0), others[0][1])
                return np.where(low < 0, -most, 0.0), most
        raise AssertionError(e.operator)

    def of(self, e: Expr) -> Bounds:
        if isinstance(e, Const):
            return (float(e.value), float(e.value)) if e.type.is_integer else _limits(e.type)
        if isinstance(e, Var):
            return self.variables.get(e.name, _limits(e.type))
        if not e.type.is_integer:
            return _limits(e.type)
        low, high = _limits(e.type)
        if e.operator in EXACT or e.operator in ("+!", "-!"):
            lower, upper = self.exact(e)
            if e.operator in ("*", "$pow"):
                # What wraps around may be anything.
                fits = (lower >= low) & (upper <= high)
                return np.where(fits, lower, low), np.where(fits, upper, high)
        elif e.operator == "if":
            (a, b), (c, d) = self.of(e.operands[1]), self.of(e.operands[2])
            lower, upper = np.minimum(a, c), np.maximum(b, d)
        elif e.operator in ("$min", "$max"):
            lows, highs = zip(*map(self.of, e.operands))
            chosen = np.minimum if e.operator == "$min" else np.maximum
            lower, upper = chosen.reduce(np.broadcast_arrays(*lows)), chosen.reduce(np.broadcast_arrays(*highs))
        elif e.operator in ("%", "/"):
            (a, b), (c, d) = map(self.of, e.operands)
            most = np.maximum(abs(a), abs(b))
            if e.operator == "%":
                most = np.minimum(most, np.maximum(abs(c), abs(d)))
            elif isinstance(e.operands[1], Const):
                most = most / np.maximum(abs(c), 1.0)
            is_positive = (a >= 0) & (True if e.operator == "%" else c >= 0)
            lower, upper = np.where(is_positive, 0.0, -most), most
        elif e.operator == "cast" and e.operands[0].type.is_integer:
            lower, upper = self.of(e.operands[0])
            fits = (lower >= low) & (upper <= high)
            return np.where(fits, lower, low), np.where(fits, upper, high)
        else:
            return low, high
        return np.clip(lower, low, high), np.clip(upper, low, high)


def _hull(*values: Any) -> Bounds:
    least = most = values[0]
    for value in values[1:]:
        least, most = np.minimum(least, value), np.maximum(most, value)
    return least, most


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
        found = _Looking(look, tables, mode, symbols, watch).example()
        if found is not None:
            said.add(look.part.span)
            _say(ram, look, found)


class _Looking:
    def __init__(self, look: Look, tables: Mapping[str, Table], mode: Algebra, symbols: SymbolTable, watch: Deadline):
        self.look, self.tables, self.mode, self.symbols, self.watch = look, tables, mode, symbols, watch
        operators = look.store.query.operators
        self.scans = [(place, scan) for place, node in enumerate(operators) if (scan := _bound_scan(node)) is not None]
        known: dict[str, Expr] = {}
        for node in operators:
            if isinstance(node, m.Extend):
                known[node.variable.name] = substitute(node.expression, known)
        self.part: Apply = substitute(look.part, known)

    def example(self) -> tuple[tuple[int, ...], int] | None:
        """Operands whose value is beyond the type, and what it became; None where there are none."""
        bounds: dict[str, Bounds] = {}
        for _, scan in self.scans:
            table = self.tables.get(scan.relation)
            if table is None or not table.size:
                # What a run does not have, it has not computed.
                return None
            for column, term in _columns(scan):
                low, high = _bounds_of_words(*_extreme(table, column), term.type)
                before = bounds.get(term.name, (low, high))
                bounds[term.name] = max(low, before[0]), min(high, before[1])
        if not np.any(_Bounds(bounds).beyond(self.part)):
            return None
        return self.searched(bounds)

    def searched(self, bounds: Mapping[str, Bounds]) -> tuple[tuple[int, ...], int] | None:
        names = {part.name for part in walk(self.part) if isinstance(part, Var)}
        operators, tables = list(self.look.store.query.operators), dict(self.tables)
        for place, scan in self.scans:
            columns = [(column, term) for column, term in _columns(scan) if term.name in names]
            if not columns:
                continue
            table = tables[scan.relation]
            words = {term.name: table.column(column) for column, term in columns}
            rows = {term.name: _bounds_of_words(words[term.name], words[term.name], term.type) for _, term in columns}
            kept = np.flatnonzero(np.broadcast_to(_Bounds({**bounds, **rows}).beyond(self.part), table.size))
            if not len(kept):
                return None
            if len(kept) < table.size:
                name = f"{scan.relation} {place}"
                tables[name] = _some(table, kept, name)
                changed = replace(scan, relation=name)
                operators[place] = changed if isinstance(operators[place], m.Scan) else m.Join(changed)
        for place, node in enumerate(operators):
            if isinstance(node, m.Difference):
                name = f"{node.right.relation} {place}"
                tables[name] = self.blocking(tables[node.right.relation], name)
                operators[place] = m.Difference(replace(node.right, relation=name))
        left = [node for node in operators if _is_read(node)]
        if any(isinstance(node, m.Generate) and node not in left for node in operators):
            bound = {name for node in left for name in m.binds(node)}
            if any(not names_of(one) <= bound for one in (*left, *self.look.part.operands)):
                return None
        query = m.Project(tuple(left), self.look.part.operands)
        queries = Queries(tables, _UNTAGGED, self.symbols, RandomFacts(), self.watch)
        for columns, _, _ in islice(queries.projected(query, query.steps), MOST_BATCHES):
            if (found := self.beyond(columns)) is not None:
                return found
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
        rows = np.flatnonzero(np.broadcast_to(_Bounds(bounds).beyond(replace(part, operands=terms)), len(columns[0])))
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


def _say(ram: m.Ram, look: Look, found: tuple[tuple[int, ...], int]) -> None:
    values, became = found
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
