"""A Datalog evaluator that shares nothing with the library: rules are Python tuples, evaluation tries all assignments.

A rule is (head, arguments, body); a literal of a body is ("+", relation, arguments), ("-", relation, arguments) or
(operator, left, right). Arguments are variable names or integers. Strata are given by the order of the relations.
"""

import itertools
import math
import operator
from fractions import Fraction

from hypothesis import strategies as st

DOMAIN = range(4)
EDB = {"e": 2, "u": 1}
COMPARE = {"<": operator.lt, "!=": operator.ne, "==": operator.eq, ">=": operator.ge}


def text_of(rules, aggregates=()):
    """The program in the surface language."""
    rows = ["type e(i32, i32), u(i32)"]
    for head, arguments, body in rules:
        literals = []
        for kind, *rest in body:
            if kind in "+-":
                literals.append(("not " if kind == "-" else "") + f"{rest[0]}({', '.join(map(str, rest[1]))})")
            else:
                literals.append(f"{rest[0]} {kind} {rest[1]}")
        rows.append(f"rel {head}({', '.join(map(str, arguments))}) = {', '.join(literals)}")
    rows += aggregates
    return "\n".join(rows)


def solutions(body, model):
    variables = sorted({a for kind, *rest in body for a in (rest[1] if kind in "+-" else rest) if isinstance(a, str)})
    for values in itertools.product(DOMAIN, repeat=len(variables)):
        world = dict(zip(variables, values))

        def value(a, world=world):
            return world.get(a, a)

        holds = True
        for kind, *rest in body:
            if kind in "+-":
                there = tuple(value(a) for a in rest[1]) in model[rest[0]]
                holds = there == (kind == "+")
            else:
                holds = COMPARE[kind](value(rest[0]), value(rest[1]))
            if not holds:
                break
        if holds:
            yield world


def least_model(rules, facts, order):
    """Relation -> set of tuples, one relation of `order` after the other."""
    model = {name: set(facts.get(name, ())) for name in [*EDB, *order]}
    for name in order:
        while True:
            new = {
                tuple(world.get(a, a) for a in arguments)
                for head, arguments, body in rules
                if head == name
                for world in solutions(body, model)
            }
            if new <= model[name]:
                break
            model[name] |= new
    return model


@st.composite
def programs(draw, max_rules=3):
    """(rules, order): up to three relations p0, p1, p2, each recursive, negating and comparing at will."""
    order = [f"p{i}" for i in range(draw(st.integers(1, 3)))]
    arity = {**EDB, **{name: draw(st.integers(1, 2)) for name in order}}
    rules = []
    argument = st.one_of(st.sampled_from("xyz"), st.integers(0, 3))
    for i, name in enumerate(order):
        for _ in range(draw(st.integers(1, max_rules))):
            body = []
            for _ in range(draw(st.integers(1, 3))):
                relation = draw(st.sampled_from([*EDB, *order[: i + 1]]))
                body.append(("+", relation, tuple(draw(argument) for _ in range(arity[relation]))))
            bound = sorted({a for _, _, arguments in body for a in arguments if isinstance(a, str)})
            safe = st.one_of(st.sampled_from(bound), st.integers(0, 3)) if bound else st.integers(0, 3)
            if draw(st.booleans()):
                relation = draw(st.sampled_from([*EDB, *order[:i]]))
                body.append(("-", relation, tuple(draw(safe) for _ in range(arity[relation]))))
            if bound and draw(st.booleans()):
                body.append((draw(st.sampled_from(sorted(COMPARE))), draw(st.sampled_from(bound)), draw(safe)))
            rules.append((name, tuple(draw(safe) for _ in range(arity[name])), tuple(body)))
    return rules, order


def fact_sets(max_edges=8, max_units=3):
    """Facts for e and u."""
    edge = st.tuples(st.integers(0, 3), st.integers(0, 3))
    return st.fixed_dictionaries(
        {
            "e": st.lists(edge, max_size=max_edges, unique=True),
            "u": st.lists(st.tuples(st.integers(0, 3)), max_size=max_units, unique=True),
        }
    )


# Aggregates: name -> the results of the rows of one group, each (arguments, values), as a set of tuples. Rows are
# certain and of i32, texts for `string_join`. Samples are not here, nor are sums of floats.


def _best(pick, keep):
    def fold(rows, **_):
        top = pick((values for _, values in rows), default=None)
        return {keep(arguments, values) for arguments, values in rows if values == top}

    return fold


def _places(keep, ascending):
    def fold(rows, asc=ascending, desc=None):
        upwards = asc if desc is None else not desc
        ranked = sorted(sorted(rows), key=lambda row: row[1], reverse=not upwards)
        return {(place, *keep(*row)) for place, row in enumerate(ranked)}

    return fold


def _first(rows, k=1):
    return {values for _, values in sorted(rows, key=lambda row: row[1])[:k]}


def _joined(rows, separator="", all=False):
    blocks = {}
    for arguments, (text,) in sorted(rows):
        blocks.setdefault(arguments, []).append(text)
    if all and any(arguments for arguments in blocks):
        return {(separator.join(texts),) for texts in itertools.product(*blocks.values())}
    return {(separator.join(text for _, (text,) in sorted(rows)),)}


def _mean(rows, **_):
    return {(math.trunc(Fraction(sum(v for _, (v,) in rows), len(rows))),)} if rows else set()


def _same(rows, **_):
    return {values for _, values in rows}


FOLDS = {
    "count": lambda rows: {(len(rows),)},
    "exists": lambda rows: {(bool(rows),)},
    "forall": lambda rows: {(not rows,)},
    "sum": lambda rows: {(max(-(2**31), min(2**31 - 1, sum(v for _, (v,) in rows))),)},
    "prod": lambda rows: {((math.prod(v for _, (v,) in rows) + 2**31) % 2**32 - 2**31,)},
    "avg": _mean,
    "min": _best(min, lambda a, v: (*a, *v)),
    "max": _best(max, lambda a, v: (*a, *v)),
    "argmin": _best(min, lambda a, v: a),
    "argmax": _best(max, lambda a, v: a),
    "sort": _places(lambda a, v: (*a, *v), False),
    "argsort": _places(lambda a, v: a, False),
    "enumerate": _places(lambda a, v: v, True),
    "rank": lambda rows, **_: _places(lambda a, v: v, True)(rows),
    "top": _first,
    "unique": _first,
    "string_join": _joined,
    "normalize": _same,
    "softmax": _same,
    "disjunct": lambda rows: {(*a, *v) for a, v in rows},
}


@st.composite
def splits(draw, facts, parts):
    """The facts of each relation in parts, some of which come twice."""
    made = [{} for _ in range(parts)]
    for name, rows in facts.items():
        for row in rows:
            for number in draw(st.lists(st.integers(0, parts - 1), min_size=1, max_size=2)):
                made[number].setdefault(name, []).append(row)
    return [{name: draw(st.permutations(rows)) for name, rows in part.items()} for part in made]


# Unsigned integers. An argument is a name, a number, or (name, offset). In a positive literal it is an equation between
# integers without limits; in a head and under a negation it is a number, which stops at the limits of the type.


def shifted(argument):
    """The text of an argument."""
    if isinstance(argument, tuple):
        name, offset = argument
        return f"{name} {'+' if offset > 0 else '-'} {abs(offset)}"
    return str(argument)


def unsigned_text(rules, t):
    """The program in the surface language, over a type."""
    rows = [f"type e({t}, {t}), u({t})"]
    rows += [f"type {name}({', '.join([t] * arity)})" for name, arity in {(r[0], len(r[1])) for r in rules}]
    for head, arguments, body in rules:
        literals = [
            ("not " if kind == "-" else "") + f"{name}({', '.join(map(shifted, terms))})" for kind, name, terms in body
        ]
        rows.append(f"rel {head}({', '.join(map(shifted, arguments))}) = {', '.join(literals)}")
    return "\n".join(rows)


def _number(argument, world, high=None):
    """The value of an argument, between 0 and `high` if that is given."""
    name, offset = argument if isinstance(argument, tuple) else (argument, 0)
    value = world.get(name, name) + offset
    return value if high is None else max(0, min(high, value))


def unsigned_model(rules, facts, order, high):
    """Relation -> set of tuples. Every variable occurs in a positive literal, at most two from a value there is."""
    model = {name: set(facts.get(name, ())) for name in [*EDB, *order]}
    for name in order:
        while True:
            there = {value for rows in model.values() for row in rows for value in row}
            near = sorted({v + d for v in there for d in range(-2, 3) if 0 <= v + d <= high})
            new = set()
            for head, arguments, body in rules:
                if head != name:
                    continue
                names = sorted({a[0] if isinstance(a, tuple) else a for _, _, terms in body for a in terms} - {0, 1})
                for values in itertools.product(near, repeat=len(names)):
                    world = dict(zip(names, values))
                    if all(
                        tuple(_number(a, world) for a in terms) in model[relation]
                        if kind == "+"
                        else tuple(_number(a, world, high) for a in terms) not in model[relation]
                        for kind, relation, terms in body
                    ):
                        new.add(tuple(_number(a, world, high) for a in arguments))
            if new <= model[name]:
                break
            model[name] |= new
    return model


@st.composite
def unsigned_programs(draw):
    """(rules, order): relations p0, p1 with sums and differences in heads, bodies and under negations.

    A rule that reads its own relation has its variables bound by facts too, so that the model is finite.
    """
    order = [f"p{i}" for i in range(draw(st.integers(1, 2)))]
    arity = {**EDB, **{name: draw(st.integers(1, 2)) for name in order}}
    offset = st.sampled_from([-2, -1, -1, 1, 2])
    rules = []
    for i, name in enumerate(order):
        for _ in range(draw(st.integers(1, 3))):
            body = []
            for _ in range(draw(st.integers(1, 2))):
                relation = draw(st.sampled_from([*EDB, *order[: i + 1]]))
                terms = []
                for _ in range(arity[relation]):
                    variable = draw(st.sampled_from("xy"))
                    terms.append(draw(st.one_of(st.just(variable), st.tuples(st.just(variable), offset))))
                body.append(("+", relation, tuple(terms)))
            bound = sorted({a[0] for _, _, terms in body for a in terms})
            if any(relation == name for _, relation, _ in body):
                body += [("+", "u", (variable,)) for variable in bound]
            number = st.one_of(st.sampled_from(bound), st.tuples(st.sampled_from(bound), offset))
            if draw(st.booleans()):
                relation = draw(st.sampled_from([*EDB, *order[:i]]))
                body.append(("-", relation, tuple(draw(number) for _ in range(arity[relation]))))
            body = draw(st.permutations(body))
            rules.append((name, tuple(draw(number) for _ in range(arity[name])), tuple(body)))
    return rules, order


def unsigned_facts(high):
    """Facts for e and u at both ends of the type."""
    value = st.sampled_from([0, 1, 2, high - 2, high - 1, high])
    return st.fixed_dictionaries(
        {
            "e": st.lists(st.tuples(value, value), max_size=5, unique=True),
            "u": st.lists(st.tuples(value), max_size=5, unique=True),
        }
    )
