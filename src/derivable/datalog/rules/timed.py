"""Recursion through negation and aggregates that goes forward in time:

    on(t) :- step(t), not on((t - 1))

A cycle of relations is computed one value of `t` after the other if each of them has a column, its time, such that
every rule reads rows of the time of its head, or of a constant before it, and those of the same time without a cycle
through a negation or an aggregate. An atom outside the cycle must say which times there are. So a step has rules in
which what is earlier is complete, and another name:

    on(t) :- #now(t), step(t), not #before_on((t - 1))

Source: local stratification (Przymusinski, On the declarative semantics of deductive databases, 1988), of programs
that are XY-stratified (Zaniolo, Arni, Ong, Negation and aggregates in recursive rules, 1993).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from derivable.core.diagnostics import Span
from derivable.datalog.aggregates.record import AGGREGATES
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.sideways import evaluable
from derivable.datalog.rules.strata import cycles
from derivable.datalog.values.values import BOOL, TYPES

NOW, TIMES, LATE = "#now", "#times", "#late"
INDEX = TYPES["usize"]
# Choices of columns that are looked at.
MOST_CHOICES = 64
# A variable, None for a constant, and what is added to it.
Shifted = tuple[str | None, int]


@dataclass(frozen=True)
class Timed:
    """A cycle that is computed one time after the other.

    columns   relation -> the column of its times
    times     the rules of `#times`, which has the time of every row that the rules may derive, and of `#late`: the
              numbers of the `readings` whose time is not as it should be, the time of the head, and that of the reading
    step      the rules for the time in `#now`, which read earlier rows from the relations of `before`
    readings  the literals that read the cycle by an expression
    """

    columns: Mapping[str, int]
    times: r.Rules
    step: r.Rules
    readings: tuple[r.Atom | r.Negated, ...]


def before(relation: str) -> str:
    """The relation of the earlier rows of one."""
    return f"#before_{relation}"


def timed(program: r.Rules, component: set[str]) -> Timed | str | None:
    """How a cycle is computed one time after the other; where only an atom for the times is missing, a hint that says
    so; None for other cycles."""
    rules = [rule for rule in program.rules if rule.relation in component]
    if not all(map(_is_plain, rules)) or any(_is_special(program, name) for name in component):
        return None
    readings = [reading for rule in rules for reading in _readings(program, rule, component)]
    integers = {
        name: {c for c, t in enumerate(relation.types) if t.is_integer and not t.is_wide}
        for name, relation in program.relations.items()
        if name in component
    }
    hint = None
    for columns in islice(_choices(integers, readings), MOST_CHOICES):
        step = _step(program, rules, columns, readings)
        if cycles(step.relations, step.rules).broken:
            continue
        times = _times(program, rules, columns, readings)
        if isinstance(times, str):
            hint = hint or times
            continue
        late = _late(columns, readings)
        if late is not None:
            checks, literals = late
            return Timed(columns, _program(program, {}, [*times, *checks], columns), step, literals)
    return hint


def _is_plain(rule: r.Rule) -> bool:
    """Whether what a rule finds at one time does not depend on rows of other times."""
    if isinstance(rule, r.Clause):
        return True
    return AGGREGATES[rule.operator].by_weight is None


def _is_special(program: r.Rules, name: str) -> bool:
    relation = program.relations[name]
    is_constructor = any(constructor.relation == name for constructor in program.constructors.values())
    return relation.lattice is not None or relation.keys is not None or is_constructor


# What rules read


@dataclass(frozen=True)
class _Reading:
    """A literal or aggregate that reads a relation of the cycle.

    lags      (column of the head, column of the relation) -> by how much the second is less, where that is constant and
              not negative
    has_head  whether a row of the head needs a row of the relation
    """

    rule: r.Rule
    relation: str
    lags: Mapping[tuple[int, int], int]
    has_head: bool
    literal: r.Atom | r.Negated | None = None

    def lag(self, columns: Mapping[str, int]) -> int:
        return self.lags[columns[self.rule.relation], columns[self.relation]]


def _readings(program: r.Rules, rule: r.Rule, component: set[str]) -> Iterator[_Reading]:
    if not isinstance(rule, r.Clause):
        same = {(c, c): 0 for c in range(rule.num_group)}
        if rule.body in component:
            yield _Reading(rule, rule.body, same, rule.groups is None)
        if rule.groups is not None and rule.groups in component:
            yield _Reading(rule, rule.groups, same, True)
        return
    shifts = _shifts(rule)
    heads = [_shifted(term, shifts) for term in rule.terms]
    types = program.relations[rule.relation].types
    for literal in rule.body:
        if isinstance(literal, r.Generate) and literal.relation in component:
            yield _Reading(rule, literal.relation, {}, False)
        if not isinstance(literal, (r.Atom, r.Negated)) or literal.relation not in component:
            continue
        column_types = program.relations[literal.relation].types
        lags = {}
        for h, head in enumerate(heads):
            for b, term in enumerate(literal.terms):
                body = None if term is None else _shifted(term, shifts)
                if head and body and head[0] == body[0] and head[1] >= body[1] and types[h] == column_types[b]:
                    lags[h, b] = head[1] - body[1]
        yield _Reading(rule, literal.relation, lags, isinstance(literal, r.Atom), literal)


def _shifted(e: r.Expr, shifts: Mapping[str, Shifted]) -> Shifted | None:
    """An expression as a variable and a constant that is added to it; None if it is another one."""
    match e:
        case r.Var(name=name):
            return shifts.get(name, (name, 0))
        case r.Const(value=int() as value) if not isinstance(value, bool):
            return None, value
        case r.Apply(operator="+" | "-" | "+!" | "-!" as operator, operands=(a, b)) if e.type.is_integer:
            one, other = _shifted(a, shifts), _shifted(b, shifts)
            if one and other and other[0] is None:
                return one[0], one[1] + (other[1] if operator[0] == "+" else -other[1])
            if one and other and one[0] is None and operator[0] == "+":
                return other[0], one[1] + other[1]
    return None


def _shifts(clause: r.Clause) -> dict[str, Shifted]:
    """The variables that are others, or constants, with a constant added, by the equations of a clause."""
    shifts: dict[str, Shifted] = {}
    for literal in clause.body:
        for a, b in r.sides(literal)[:1]:
            one, other = _shifted(a, shifts), _shifted(b, shifts)
            if not one or not other or one[0] == other[0]:
                continue
            if one[0] is None:
                one, other = other, one
            # The variable `one[0]`, and all that is said by it, is said by the other one.
            name, moved = one[0], other[1] - one[1]
            assert name is not None
            shifts = {key: (other[0], n + moved) if base == name else (base, n) for key, (base, n) in shifts.items()}
            shifts[name] = other[0], moved
    return shifts


# Columns


def _choices(columns: Mapping[str, set[int]], readings: list[_Reading]) -> Iterator[dict[str, int]]:
    """The ways to choose a column of each relation for which all readings have a lag."""
    left = {name: set(some) for name, some in columns.items()}
    changed = True
    while changed:
        changed = False
        for reading in readings:
            head, body = reading.rule.relation, reading.relation
            pairs = [(h, b) for h, b in reading.lags if h in left[head] and b in left[body]]
            if head == body:
                pairs = [(h, b) for h, b in pairs if h == b]
            for name, some in ((head, {h for h, _ in pairs}), (body, {b for _, b in pairs})):
                changed |= not left[name] <= some
                left[name] &= some
    if not all(left.values()):
        return
    several = next((name for name, some in left.items() if len(some) > 1), None)
    if several is None:
        yield {name: next(iter(some)) for name, some in left.items()}
        return
    for column in sorted(left[several]):
        yield from _choices({**left, several: {column}}, readings)


# Rules


def _step(program: r.Rules, rules: list[r.Rule], columns: Mapping[str, int], readings: list[_Reading]) -> r.Rules:
    """The rules for the time in `#now`."""
    # Clauses may have literals in common, and other equations.
    earlier = {
        (id(one.rule), id(one.literal)): replace(one.literal, relation=before(one.relation))
        for one in readings
        if one.literal is not None and one.lag(columns) > 0
    }
    relations = {name: program.relations[name] for name in columns}
    relations |= {before(name): replace(program.relations[name], name=before(name)) for name in columns}
    made: list[r.Rule] = []
    for rule in rules:
        if isinstance(rule, r.Clause):
            body = [earlier.get((id(rule), id(literal)), literal) for literal in rule.body]
            made.append(replace(rule, body=(*_at_now(rule.terms[columns[rule.relation]], rule.span), *body)))
        elif rule.groups is not None and rule.groups not in columns:
            # Of the groups of all times only those of this one.
            name, whole = f"#now_{rule.groups}", program.relations[rule.groups]
            variables = tuple(r.Var(f"x{c}", t, rule.span) for c, t in enumerate(whole.types))
            relations[name] = replace(whole, name=name)
            now = _at_now(variables[columns[rule.relation]], rule.span)
            made.append(r.Clause(name, variables, (*now, r.Atom(rule.groups, variables, rule.span)), rule.span))
            made.append(replace(rule, groups=name))
        else:
            made.append(rule)
    return _program(program, relations, made, columns)


def _at_now(time: r.Expr, span: Span) -> tuple[r.Literal, ...]:
    """The time of a head is that of the step."""
    if isinstance(time, (r.Var, r.Const)):
        return (r.Atom(NOW, (time,), span),)
    now = r.Var("'now", time.type, span)
    return r.Atom(NOW, (now,), span), r.Filter(r.Apply("==", (now, time), BOOL, span), span)


def _times(
    program: r.Rules, rules: list[r.Rule], columns: Mapping[str, int], readings: list[_Reading]
) -> list[r.Rule] | str:
    """The rules of `#times`, by what rules read outside the cycle; the hint where that binds no time."""
    inner = _inner(program, columns, readings)
    made = {id(rule): clause for rule in rules if (clause := _time_of(program, rule, columns)) is not None}
    # Those of `inner` that may have other times.
    loose: set[str] = set()
    while True:
        # Whose time is that of a row of the cycle, and so is there already.
        follow = {
            id(one.rule) for one in readings if one.has_head and not one.lag(columns) and one.relation not in loose
        }
        free = [rule for rule in rules if id(rule) not in made.keys() | follow and rule.relation not in loose]
        for rule in free:
            if rule.relation not in inner:
                return _hint(rule, columns)
            loose.add(rule.relation)
        if not free:
            return [made[key] for rule in rules if (key := id(rule)) in made and rule.relation not in loose]


def _time_of(program: r.Rules, rule: r.Rule, columns: Mapping[str, int]) -> r.Clause | None:
    """The rule for the times of the head of another one; None where nothing outside the cycle binds it."""
    column = columns[rule.relation]
    if isinstance(rule, r.Clause):
        time = rule.terms[column]
        # A tuple that is uncertain is neither there nor not there: what negations say is left out.
        literals, bound = evaluable([one for one in rule.body if _may_say_times(one, columns)])
        return r.Clause(TIMES, (time,), tuple(literals), rule.span) if r.names(time) <= bound else None
    if rule.groups is None or rule.groups in columns:
        return None
    variables = tuple(r.Var(f"x{c}", t, rule.span) for c, t in enumerate(program.relations[rule.groups].types))
    return r.Clause(TIMES, (variables[column],), (r.Atom(rule.groups, variables, rule.span),), rule.span)


def _late(
    columns: Mapping[str, int], readings: list[_Reading]
) -> tuple[list[r.Rule], tuple[r.Atom | r.Negated, ...]] | None:
    """The rules of `#late`, and the readings that they look at; None where something else than the times of the cycle
    binds a time. Differences and sums stop at the limits of their type: `t - 1` may be `t`."""
    made: list[r.Rule] = []
    literals: list[r.Atom | r.Negated] = []
    for reading in readings:
        rule, literal = reading.rule, reading.literal
        if literal is None:
            continue
        assert isinstance(rule, r.Clause)
        head, body = rule.terms[columns[rule.relation]], literal.terms[columns[literal.relation]]
        if head == body or body is None:
            continue
        some: list[r.Literal] = []
        for one in rule.body:
            if isinstance(one, r.Atom) and one.relation in columns:
                some.append(r.Atom(TIMES, (one.terms[columns[one.relation]],), one.span))
            elif _may_say_times(one, columns):
                some.append(one)
        literals_of_times, bound = evaluable(some)
        if not r.names(head) | r.names(body) <= bound:
            return None
        operator = ">=" if reading.lag(columns) else "!="
        is_late = r.Filter(r.Apply(operator, (body, head), BOOL, literal.span), literal.span)
        number = r.Const(len(literals), INDEX)
        made.append(r.Clause(LATE, (number, head, body), (*literals_of_times, is_late), literal.span))
        literals.append(literal)
    return made, tuple(literals)


def _hint(rule: r.Rule, columns: Mapping[str, int]) -> str:
    names = r.names(rule.terms[columns[rule.relation]]) if isinstance(rule, r.Clause) else ()
    time = next((name for name in sorted(names) if name.isidentifier()), "t")
    name = next((name for name in columns if not name.startswith("#")), "on")
    return (
        f"a cycle that reads earlier values of `{time}` alone is computed one value after the other, if in each of its "
        f"rules an atom of a relation outside of the cycle binds `{time}`, as `step({time})` does in "
        f"`{name}({time}) = step({time}), not {name}({time} - 1)`"
    )


def _inner(program: r.Rules, columns: Mapping[str, int], readings: list[_Reading]) -> set[str]:
    """The auxiliary relations that rules of the cycle alone read, for the time of their head: of other times than those
    in `#times` nobody needs them."""
    earlier = {one.relation for one in readings if one.lag(columns)}
    outside = {name for rule in program.rules if rule.relation not in columns for name, _ in rule.dependencies}
    seen = earlier.union(outside, program.outputs)
    return {name for name in columns if name.startswith("#") and name not in seen}


def _may_say_times(literal: r.Literal, columns: Mapping[str, int]) -> bool:
    if isinstance(literal, (r.Negated, r.RuleProbability)) or (isinstance(literal, r.Generate) and literal.negated):
        return False
    return getattr(literal, "relation", None) not in columns


def _program(
    program: r.Rules, relations: Mapping[str, r.Relation], rules: list[r.Rule], columns: Mapping[str, int]
) -> r.Rules:
    """A program of some rules, with those relations of the whole one that they read."""
    name, column = next(iter(columns.items()))
    time = program.relations[name].types[column]
    relations_of_time = dict(relations)
    for name, types in ((NOW, (time,)), (TIMES, (time,)), (LATE, (INDEX, time, time))):
        relations_of_time[name] = r.Relation(name, types, is_hidden=True, is_certain=True)
    read = {name for rule in rules for name, _ in rule.dependencies}
    outside = {
        name: relation for name, relation in program.relations.items() if name in read and name not in relations_of_time
    }
    return replace(
        program, relations={**outside, **relations_of_time}, facts=(), rules=tuple(rules), outputs=(), queries=()
    )
