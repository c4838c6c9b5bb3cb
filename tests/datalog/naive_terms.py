"""A Datalog evaluator with terms that shares nothing with the library: terms are tuples, matching is recursion.

A term is ("Node", 1, ("Leaf",), ("Leaf",)). A rule is (head, arguments, body); a literal of a body is ("+", relation,
patterns), ("-", relation, patterns), ("is", variable, pattern), ("is not", variable, pattern) or ("==" or "!=", left,
right). A pattern is a variable name, "_", an integer or ("Node", pattern, ...); an argument of a head may be
("new", "Node", argument, ...). Only the relations of `EDB` are negated, so that there is one fixpoint.
"""

from hypothesis import strategies as st

FIELDS = {"Leaf": "", "Tip": "i", "Node": "itt"}
EDB = {"tree": "t", "lab": "it"}
TYPES = {"i": "i32", "t": "Tree"}


def text(part):
    if not isinstance(part, tuple):
        return str(part)
    mark = "new " if part[0] == "new" else ""
    functor, *fields = part[1:] if mark else part
    return f"{mark}{functor}({', '.join(map(text, fields))})"


def literal_text(literal):
    kind, *rest = literal
    if kind in "+-":
        return ("not " if kind == "-" else "") + f"{rest[0]}({', '.join(map(text, rest[1]))})"
    if kind.startswith("is"):
        return f"{'not ' if kind == 'is not' else ''}case {rest[0]} is {text(rest[1])}"
    return f"{text(rest[0])} {kind} {text(rest[1])}"


def text_of(rules, signatures):
    """The program in the surface language."""
    variants = " | ".join(f"{name}({', '.join(TYPES[f] for f in fields)})" for name, fields in FIELDS.items())
    rows = [f"type Tree = {variants}"]
    for name, columns in {**EDB, **signatures}.items():
        rows.append(f"type {name}({', '.join(TYPES[c] for c in columns)})")
    for head, arguments, body in rules:
        rows.append(f"rel {head}({', '.join(map(text, arguments))}) = {', '.join(map(literal_text, body))}")
    return "\n".join(rows)


def match(pattern, value, env):
    """The environment with what the pattern binds, None if the value has not its form."""
    if pattern == "_":
        return env
    if isinstance(pattern, str):
        return env if env.get(pattern, value) == value else None if pattern in env else env
    if isinstance(pattern, int):
        return env if pattern == value else None
    if not isinstance(value, tuple) or value[0] != pattern[0]:
        return None
    for inner, field in zip(pattern[1:], value[1:]):
        env = extended(inner, field, env)
        if env is None:
            return None
    return env


def extended(pattern, value, env):
    if isinstance(pattern, str) and pattern != "_" and pattern not in env:
        return {**env, pattern: value}
    return match(pattern, value, env)


def rows_match(patterns, row, env):
    for pattern, value in zip(patterns, row):
        env = extended(pattern, value, env)
        if env is None:
            return None
    return env


def built(argument, env):
    if isinstance(argument, tuple):
        return tuple(built(a, env) for a in (argument[1:] if argument[0] == "new" else argument))
    return env.get(argument, argument)


def parts(value):
    if not isinstance(value, tuple):
        return set()
    return {value}.union(*map(parts, value[1:]))


def solutions(body, model, terms):
    envs = [{}]
    binders = [literal for literal in body if literal[0] in ("+", "is")]
    # Atoms first, so that most terms that are taken apart are known.
    for kind, left, right in sorted(binders, key=lambda literal: literal[0]):
        if kind == "+":
            found = [rows_match(right, row, env) for env in envs for row in model[left]]
        else:
            found = [rows_match((left, right), (t, t), env) for env in envs for t in terms]
        envs = [env for env in found if env is not None]
    for kind, left, right in body:
        if kind == "-":
            envs = [env for env in envs if all(rows_match(right, row, env) is None for row in model[left])]
        elif kind == "is not":
            envs = [env for env in envs if extended(right, env[left], env) is None]
        elif kind in ("==", "!="):
            envs = [env for env in envs if (built(left, env) == built(right, env)) == (kind == "==")]
    return envs


def least_model(rules, facts, signatures, there=frozenset()):
    """Relation -> set of tuples of the least fixpoint, and the terms that are there, some of them from the start."""
    model = {name: set(facts.get(name, ())) for name in (*EDB, *signatures)}
    while True:
        terms = set(there).union(*(parts(v) for rows in model.values() for row in rows for v in row))
        size = sum(map(len, model.values()))
        for head, arguments, body in rules:
            for env in solutions(body, model, terms):
                model[head].add(tuple(built(a, env) for a in arguments))
        if sum(map(len, model.values())) == size:
            return model, terms


# Random programs


@st.composite
def patterns(draw, kind, depth=None):
    depth = draw(st.integers(0, 2)) if depth is None else depth
    if kind == "i":
        return draw(st.sampled_from(["x", "y", "_", 0, 1]))
    if not depth or draw(st.booleans()):
        return draw(st.sampled_from(["s", "t", "u", "_"]))
    functor = draw(st.sampled_from(sorted(FIELDS)))
    return (functor, *(draw(patterns(field, depth - 1)) for field in FIELDS[functor]))


def names(part):
    if isinstance(part, tuple):
        return set().union(*map(names, part[1:]))
    return {part} if isinstance(part, str) and part in ("x", "y", "s", "t", "u") else set()


def renamed(part, bound, mark):
    """A pattern whose variables that are not bound occur nowhere else."""
    if isinstance(part, tuple):
        return (part[0], *(renamed(p, bound, mark) for p in part[1:]))
    return f"{part}{mark}" if isinstance(part, str) and part != "_" and part not in bound else part


@st.composite
def made(draw, kind, bound, depth=2):
    known = sorted(bound & set("xy" if kind == "i" else "stu"))
    if kind == "i":
        return draw(st.sampled_from([*known, 0, 2]))
    if known and (not depth or draw(st.booleans())):
        return draw(st.sampled_from(known))
    functor = draw(st.sampled_from(sorted(FIELDS) if depth else ["Leaf", "Tip"]))
    return ("new", functor, *(draw(made(field, bound, depth - 1)) for field in FIELDS[functor]))


@st.composite
def programs(draw):
    """(rules, signatures): up to three relations. Rules with `new` read facts only, so that every program ends."""
    signatures = {f"p{i}": draw(st.sampled_from(["t", "i", "tt", "it"])) for i in range(draw(st.integers(1, 3)))}
    rules = []
    for name, columns in signatures.items():
        for _ in range(draw(st.integers(1, 3))):
            makes = draw(st.booleans())
            known = EDB if makes else {**EDB, **signatures}
            body, bound = [], set()
            for _ in range(draw(st.integers(1, 2))):
                relation = draw(st.sampled_from(sorted(known)))
                row = tuple(draw(patterns(column)) for column in known[relation])
                body.append(("+", relation, row))
                bound |= names(row)
            terms = sorted(bound & set("stu"))
            for _ in range(draw(st.integers(0, 2))):
                # Rules with `new` take only terms of facts apart.
                subject = (
                    draw(st.sampled_from(terms if makes or draw(st.booleans()) else ["s", "t", "u"])) if terms else None
                )
                pattern = draw(patterns("t"))
                if subject is None or not isinstance(pattern, tuple) or subject in names(pattern):
                    continue
                body.append(("is", subject, pattern))
                bound |= names(pattern) | {subject}
            terms = sorted(bound & set("stu"))
            if terms and draw(st.booleans()):
                pattern = draw(patterns("t"))
                if isinstance(pattern, tuple):
                    body.append(("is not", draw(st.sampled_from(terms)), renamed(pattern, bound, 1)))
            if draw(st.booleans()):
                relation = draw(st.sampled_from(sorted(EDB)))
                row = tuple(renamed(draw(patterns(column)), bound, 2) for column in EDB[relation])
                body.append(("-", relation, row))
            if terms and draw(st.booleans()):
                body.append(
                    (draw(st.sampled_from(["==", "!="])), draw(st.sampled_from(terms)), draw(st.sampled_from(terms)))
                )
            arguments = []
            for column in columns:
                choices = sorted(bound & set("xy" if column == "i" else "stu"))
                if makes:
                    arguments.append(draw(made(column, bound)))
                elif choices:
                    arguments.append(draw(st.sampled_from(choices)))
                else:
                    arguments.append(0 if column == "i" else ("new", "Leaf"))
            rules.append((name, tuple(arguments), tuple(body)))
    return rules, signatures


ground = st.recursive(
    st.one_of(st.just(("Leaf",)), st.integers(0, 1).map(lambda x: ("Tip", x))),
    lambda inner: st.tuples(st.just("Node"), st.integers(0, 1), inner, inner),
    max_leaves=4,
)


def fact_sets():
    return st.fixed_dictionaries(
        {
            "tree": st.lists(ground.map(lambda t: (t,)), min_size=2, max_size=5, unique=True),
            "lab": st.lists(st.tuples(st.integers(0, 1), ground), min_size=1, max_size=4, unique=True),
        }
    )
