"""What a program means, straight from its syntax: formulas are searched for all their solutions.

Nothing is typed, desugared, ordered or planned: a conjunction is tried in any order that binds its variables, what
remains unbound goes over all small values, negation pushes inwards by the laws of logic, and relations grow one after
the other until nothing is new. Terms of data types are tuples (constructor, fields ...).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any

from derivable.datalog.scalars.nodes import children
from derivable.datalog.syntax import nodes as s

NUMBERS = range(-2, 12)
TEXTS = ("a", "b", "c")
_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&&": lambda a, b: a and b,
    "||": lambda a, b: a or b,
    "^": operator.xor,
}
_NUMBER = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_FUNCTIONS = {
    "abs": abs,
    "max": max,
    "min": min,
    "string_concat": lambda *parts: "".join(parts),
    "string_length": len,
}
Environment = dict[str, Any]


class _NoValueError(Exception):
    """A failing operation: the row is dropped."""


def model_of(syntax: s.Syntax, facts: dict[str, list[tuple]], order: list[str]) -> dict[str, set[tuple]]:
    """Relation -> its tuples; relations of `order` are computed one after the other."""
    model: dict[str, set[tuple]] = {
        item.name: set(facts.get(item.name, ())) for item in syntax.items if isinstance(item, s.RelationType)
    }
    rules = [item for item in syntax.items if isinstance(item, (s.Rule, s.ReduceRule))]
    for name in order:
        own = [rule for rule in rules if name in _heads(rule)]
        size = -1
        while size < len(model[name]):
            size = len(model[name])
            for rule in own:
                model[name] |= set(_derived(rule, name, model))
    return model


def _heads(rule: s.Rule | s.ReduceRule) -> list[str]:
    return [head.relation for head in rule.heads] if isinstance(rule, s.Rule) else [rule.relation]


def _derived(rule: s.Rule | s.ReduceRule, name: str, model: dict) -> list[tuple]:
    search = _Search(model)
    if isinstance(rule, s.ReduceRule):
        aggregate = rule.aggregate
        outputs = tuple(s.Variable(f"#{i}") for i in range(1))
        search.outside = [set(aggregate.group), {"#0"}]
        assigned = s.Aggregate(**{**vars(aggregate), "outputs": outputs})
        terms = [*(s.Variable(g) for g in aggregate.group), *outputs]
        found = search.solutions([(assigned, True)], {})
        return [tuple(env[t.name] for t in terms) for env in found]
    rows = []
    heads = [head for head in rule.heads if head.relation == name]
    search.outside = [free(a) for head in rule.heads for a in head.arguments]
    for env in search.solutions([(rule.body, True)], {}):
        for head in heads:
            try:
                rows.append(tuple(value(a, env) for a in head.arguments))
            except _NoValueError:
                continue
    return rows


def value(e: Any, env: Environment) -> Any:
    match e:
        case s.Constant(value=v):
            return v
        case s.Variable(name=name):
            return env[name]
        case s.Unary(operator="-", operand=a):
            return -value(a, env)
        case s.Unary(operand=a):
            return not value(a, env)
        case s.Binary(operator=o, left=a, right=b):
            left, right = value(a, env), value(b, env)
            if o in _COMPARE:
                return _COMPARE[o](left, right)
            if o in _NUMBER:
                return _NUMBER[o](left, right)
            if right == 0:
                raise _NoValueError
            # Truncation towards zero, as machines divide.
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return quotient if o == "/" else left - right * quotient
        case s.Conditional(condition=c, then=a, otherwise=b):
            return value(a if value(c, env) else b, env)
        case s.Cast(operand=a, type_name="i32"):
            return int(value(a, env))
        case s.Cast(operand=a, type_name="String"):
            return str(value(a, env))
        case s.Call(name=name, arguments=arguments):
            return _FUNCTIONS[name](*(value(a, env) for a in arguments))
        case s.New(constructor=c, arguments=arguments):
            return (c, *(value(a, env) for a in arguments))
    raise TypeError(f"no value: {e}")


def free(node: Any) -> set[str]:
    """The variables of a formula that are not local to an aggregate in it."""
    if isinstance(node, s.Variable):
        return {node.name}
    if isinstance(node, s.Aggregate):
        local = {*node.bindings, *node.arguments}
        parts = [node.body, *([node.group_body] if node.group_body is not None else [])]
        outputs = set().union(*map(free, node.outputs or ()), ())
        return (set().union(*map(free, parts)) - local) | outputs | set(node.group)
    return set().union(*map(free, children(node)), ())


class _Search:
    """Solutions of conjunctions of signed formulas. `outside` has the variables of each part of the rule's head."""

    def __init__(self, model: dict[str, set[tuple]], outside: list[set[str]] | None = None):
        self.model = model
        self.outside: list[set[str]] = outside or []

    def inside(self, others: list[set[str]]) -> _Search:
        return _Search(self.model, [*self.outside, *others])

    def solutions(self, parts: list[tuple[Any, bool]], env: Environment) -> Iterator[Environment]:
        """Environments that make all parts hold or, where the sign says so, fail."""
        parts = [q for part in parts for q in _split(*part)]
        if not parts:
            yield env
            return
        scored = [(self.cost(part, parts, env), place) for place, part in enumerate(parts)]
        place = min(scored)[1]
        chosen, rest = parts[place], parts[:place] + parts[place + 1 :]
        others = [free(f) for f, _ in rest]
        for found in self.one(*chosen, env, others):
            yield from self.solutions(rest, found)

    def cost(self, part: tuple[Any, bool], parts: list, env: Environment) -> int:
        """What to try first: what is decided, then atoms, then what computes a variable, then what must be guessed."""
        formula, positive = part
        unbound = free(formula) - set(env)
        if isinstance(formula, s.Atom) and positive:
            plain = all(isinstance(a, (s.Variable, s.Wildcard, s.Constant, s.Atom)) for a in formula.arguments)
            return 1 if plain else 2 + len(unbound)
        if isinstance(formula, s.Aggregate) and formula.outputs is not None:
            return 3
        if isinstance(formula, s.Aggregate) and positive and formula.operator == "exists":
            return 3
        elsewhere = set().union(*(free(f) for f, _ in parts if f is not formula), *self.outside, ())
        needed = unbound & elsewhere if _is_quantified(formula) or isinstance(formula, s.Atom) else unbound
        if isinstance(formula, s.Disjunction):
            return 4
        return 0 if not needed else 10 + len(needed)

    def one(self, f: Any, positive: bool, env: Environment, others: list[set[str]]) -> Iterator[Environment]:
        elsewhere = set(env).union(*others, *self.outside)
        match f:
            case s.Atom(relation="range", arguments=(low, high, found)):
                yield from self.one(s.InRange(found, low, high, False), positive, env, others)
            case s.Atom() if positive:
                computed = [a for a in f.arguments if not isinstance(a, (s.Variable, s.Wildcard, s.Constant, s.Atom))]
                for guess in self.guesses(set().union(*map(free, computed), ()) - set(env), env):
                    for row in self.model[f.relation]:
                        found = matched(f.arguments, row, guess)
                        if found is not None:
                            yield found
            case s.Atom():
                # A variable that is nowhere else is existential under the negation.
                for guess in self.guesses((free(f) & elsewhere) - set(env), env):
                    if next(self.one(f, True, guess, []), None) is None:
                        yield guess
            case s.Disjunction(operands=parts):
                for part in parts:
                    yield from self.inside(others).solutions([(part, True)], env)
            case s.Conjunction() | s.Tuple():
                raise AssertionError("conjunctions were split")
            case s.Aggregate(operator="exists" | "forall", outputs=None):
                yield from self.quantified(f, positive, env, elsewhere)
            case s.Aggregate():
                assert positive
                yield from self.aggregated(f, env, elsewhere)
            case s.InRange(variable=v, low=low, high=high, inclusive=inclusive):
                for guess in self.guesses(free(f) - set(env), env):
                    try:
                        number, first, last = value(v, guess), value(low, guess), value(high, guess) + inclusive
                        holds = first <= number < last
                    except (_NoValueError, TypeError):
                        continue
                    if holds == positive:
                        yield guess
            case s.Case(subject=subject, pattern=pattern):
                assert positive
                found = matched([pattern], (value(subject, env),), env)
                if found is not None:
                    yield found
            case _:
                for guess in self.guesses(free(f) - set(env), env):
                    try:
                        holds = value(f, guess)
                    except (_NoValueError, TypeError):
                        continue
                    if holds == positive:
                        yield guess

    def guesses(self, names: set[str], env: Environment) -> Iterator[Environment]:
        names_in_order = sorted(names)
        for values in itertools.product((*NUMBERS, *TEXTS), repeat=len(names)):
            yield {**env, **dict(zip(names_in_order, values))}

    def quantified(
        self, f: s.Aggregate, positive: bool, env: Environment, elsewhere: set[str]
    ) -> Iterator[Environment]:
        local = {*f.bindings, *f.arguments}
        shared = (free(f) & elsewhere) - local
        outer = {name: v for name, v in env.items() if name not in local}
        if f.operator == "forall":
            body, positive = (f.body, False), not positive
        else:
            body = f.body, True
        inner = _Search(self.model, [shared])
        if positive:
            seen = []
            for found in inner.solutions([body], outer):
                added = {name: found[name] for name in shared}
                if added not in seen:
                    seen.append(added)
                    yield {**env, **added}
            return
        for guess in self.guesses(shared - set(env), env):
            outer = {name: v for name, v in guess.items() if name not in local}
            if next(inner.solutions([body], outer), None) is None:
                yield guess

    def aggregated(self, f: s.Aggregate, env: Environment, elsewhere: set[str]) -> Iterator[Environment]:
        local = {*f.bindings, *f.arguments}
        keys = sorted({*f.group, *((free(f.body) - local) & elsewhere)} | (free_group(f) & elsewhere))
        inner = _Search(self.model, [set(keys), local])
        groups: dict[tuple, set[tuple]] = {}
        if f.group_body is not None:
            for found in inner.solutions([(f.group_body, True)], {}):
                groups[tuple(found[k] for k in keys)] = set()
        elif not keys:
            groups[()] = set()
        columns = [*f.arguments, *f.bindings]
        bodies = [(f.body, True)] if f.group_body is None else [(f.group_body, True), (f.body, True)]
        for found in inner.solutions(bodies, {}):
            key = tuple(found[k] for k in keys)
            groups.setdefault(key, set()).add(tuple(found[c] for c in columns))
        for key, rows in groups.items():
            if any(env.get(k, v) != v for k, v in zip(keys, key)):
                continue
            for result in aggregate_of(f.operator, len(f.arguments), rows):
                found = matched(f.outputs or (), result, {**env, **dict(zip(keys, key))})
                if found is not None:
                    yield found


def free_group(f: s.Aggregate) -> set[str]:
    return set() if f.group_body is None else free(f.group_body)


def aggregate_of(operator_name: str, arguments: int, rows: set[tuple]) -> Iterator[tuple]:
    """The results of an aggregate of certain rows, each arguments and values."""
    values = [row[arguments:] for row in rows]
    match operator_name:
        case "count":
            yield (len(rows),)
        case "exists":
            yield (bool(rows),)
        case "sum":
            yield (sum(v[0] for v in values),)
        case "prod":
            total = 1
            for v in values:
                total *= v[0]
            yield (total,)
        case "min" | "max" | "argmin" | "argmax":
            if rows:
                best = (min if operator_name.endswith("min") else max)(values)
                for row in rows:
                    if row[arguments:] == best:
                        yield row[:arguments] if operator_name.startswith("arg") else row
        case _:
            raise NotImplementedError(operator_name)


def _is_quantified(f: Any) -> bool:
    return isinstance(f, s.Aggregate) and f.outputs is None


def matched(arguments: Any, row: tuple, env: Environment) -> Environment | None:
    """The environment in which these arguments are that row; None if there is none."""
    found = dict(env)
    for argument, there in zip(arguments, row):
        if isinstance(argument, s.Wildcard):
            continue
        if isinstance(argument, s.Variable) and argument.name not in found:
            found[argument.name] = there
            continue
        if isinstance(argument, s.Atom):
            if not isinstance(there, tuple) or there[0] != argument.relation:
                return None
            inner = matched(argument.arguments, there[1:], found)
            if inner is None:
                return None
            found = inner
            continue
        try:
            if value(argument, found) != there:
                return None
        except (_NoValueError, TypeError):
            return None
    return found


def _split(f: Any, positive: bool) -> list[tuple[Any, bool]]:
    """Negation pushed inwards, and conjunctions as their parts."""
    match f:
        case s.Not(operand=a):
            return _split(a, not positive)
        case s.Implies(condition=a, conclusion=b):
            return _split(s.Disjunction((s.Not(a), b)), positive)
        case s.Conjunction(operands=parts) | s.Tuple(items=parts) if positive:
            return [q for part in parts for q in _split(part, True)]
        case s.Conjunction(operands=parts) | s.Tuple(items=parts):
            return [(s.Disjunction(tuple(s.Not(part) for part in parts)), True)]
        case s.Disjunction(operands=parts) if not positive:
            return [q for part in parts for q in _split(part, False)]
    return [(f, positive)]
