# ruff: noqa: B007, SIM109, UP028
"""Rules that are Python functions. Expected values: Python itself runs the functions on sets, until nothing changes."""

import itertools
import pickle
import random

import pytest

import derivable as dv
from derivable.core.diagnostics import DerivableError, DomainError, ParseError, TypeMismatchError

LIMIT = 3


@dv.rule
def path(edge, path):
    for a, b in edge:
        yield a, b
    for a, b in path:
        for c, d in edge:
            if b == c:
                yield a, d


@dv.rule
def two_steps(edge):
    return {(a, c) for a, b in edge for b2, c in edge if b == b2 and a != c}


@dv.rule
def unreached(node, path):
    for x in node:
        for y in node:
            if (x, y) in path or x == y:
                continue
            yield x, y


@dv.rule
def degree(node, edge):
    for x in node:
        out = len({b for a, b in edge if a == x})
        into = len([a for a, b in edge if b == x])
        yield x, out, out - into


@dv.rule
def weights(node, edge):
    for x in node:
        total = sum(b * 2 + 1 for a, b in edge if a == x)
        yield x, total, sum(1 for a, _ in edge if a == x)


@dv.rule
def extremes(node, edge):
    for x in node:
        if any(a == x for a, _ in edge):
            yield x, min(b for a, b in edge if a == x), max(b + a for a, b in edge if a == x)


@dv.rule
def kinds(node, edge):
    for x in node:
        if all(b > x for a, b in edge if a == x):
            yield x, "up"
        elif not any(a == x and b > x for a, b in edge):
            yield x, "down"
        else:
            kind = "none" if x in (0, 1) else "both"
            yield x, kind


@dv.rule
def arithmetic(node):
    for x in node:
        for k in range(-2, LIMIT):
            if k != 0 and -5 < x - k <= 4:
                yield x, k, (x - 3) // k, (x - 3) % k, x * x - k**2, abs(x - 3), max(x, k), x / k


@dv.rule
def texts(name):
    for n in name:
        greeting = "hello " + n
        if not (n < "b" or n == "zed"):
            yield greeting, n != "bob"


@dv.rule
def isolated(node, edge):
    return {x for x in node if not any(x == a or x == b for a, b in edge)} | {x + 100 for x in node if x > LIMIT}


@dv.rule
def several_conditions(node, edge):
    for x in node:
        if len({b for a, b in edge if a == x}) > 1 and any(b == x for a, b in edge):
            yield x, "both"
        if not any(b == x for a, b in edge) or sum(1 for a, _ in edge if a == x) == 0:
            yield x, "an end"


@dv.rule
def odd_and_even(node, odd_and_even):
    yield 0, "even"
    for n, kind in odd_and_even:
        if n + 1 in node:
            if kind == "even":
                yield n + 1, "odd"
            else:
                yield n + 1, "even"


RULES = [
    path, two_steps, unreached, degree, weights, extremes, kinds, arithmetic, texts, isolated,
    several_conditions, odd_and_even,
]  # fmt: skip
TYPES = "type node(i64), edge(i64, i64), name(String)"


def by_python(rules, facts):
    """The least fixpoint, relation by relation in the order of the rules."""
    relations = {name: set(rows) for name, rows in facts.items()}
    for rule in rules:
        names = rule.function.__code__.co_varnames[: rule.function.__code__.co_argcount]
        relations[rule.__name__] = set()
        while True:
            derived = set(rule(*[relations[name] for name in names]))
            if derived <= relations[rule.__name__]:
                break
            relations[rule.__name__] |= derived
    return relations


@pytest.mark.parametrize("seed", range(4))
def test_rules_mean_what_python_means(seed):
    draw = random.Random(seed)
    nodes = range(draw.randint(2, 7))
    edges = {(a, b) for a, b in itertools.product(nodes, nodes) if draw.random() < 0.3}
    facts = {"node": set(nodes), "edge": edges, "name": {"ada", "bob", "cleo", "zed"}}
    expected = by_python(RULES, facts)
    database = dv.Program.from_rules(*RULES, text=TYPES).run({name: sorted(rows) for name, rows in facts.items()})
    for rule in RULES:
        rows = {row if len(row) > 1 else row[0] for row in database[rule.__name__]}
        assert rows == expected[rule.__name__], rule.__name__


def test_probabilities_and_layers():
    @dv.rule(probability=0.5)
    def wet(rain):
        for day in rain:
            yield day

    program = dv.Program.from_rules(wet, text="type rain(i32) query wet")
    assert program.run({"rain": dv.independent([1, 2], [0.4, 1.0])}, "exact")["wet"][1] == pytest.approx(0.2)
    import torch

    layer = dv.nn.Logic(program, {"rain": dv.independent([1, 2])}, {"wet": [1, 2]})
    assert layer(torch.tensor([0.4, 1.0])).tolist() == pytest.approx([0.2, 0.5])


def test_functions_of_ones_own():
    @dv.datalog.function
    def doubled_of_rules(x: int) -> int:
        return 2 * x

    @dv.rule
    def twice(node):
        for x in node:
            yield doubled_of_rules(x)

    assert dv.Program.from_rules(twice).run({"node": [1, 4]})["twice"].keys() == {(2,), (8,)}


def test_a_rule_is_pickled_and_called():
    assert pickle.loads(pickle.dumps(path)) is path
    assert set(two_steps({(1, 2), (2, 3)})) == {(1, 3)}


def test_quotients_by_zero_have_no_value():
    """Where Python raises, the row is not there."""

    @dv.rule
    def shares(node):
        for x in node:
            yield x, 6 / x

    @dv.rule
    def parts(node):
        for x in node:
            yield x, 7 // x, -7 % x

    database = dv.Program.from_rules(shares, parts, text="type node(i64)").run({"node": [-2, 0, 3]})
    assert set(database["shares"]) == {(-2, -3.0), (3, 2.0)}
    assert set(database["parts"]) == {(-2, -4, -1), (3, 2, 2)}


def refused(function):
    with pytest.raises(DerivableError) as caught:
        dv.rule(function)
    return str(caught.value)


def test_errors_have_their_place():
    def bound_twice(edge):
        for a, b in edge:
            for b, c in edge:
                yield a, c

    text = refused(bound_twice)
    assert "error: 'b' is bound already" in text
    assert "            for b, c in edge:\n" in text
    assert text.splitlines()[2].index("^") == text.splitlines()[1].index("b, c in")
    assert "compare: `if b == ...`" in text

    def unknown(edge):
        for a, b in edge:
            yield a, nothing  # noqa: F821

    assert "'nothing' is not bound here" in refused(unknown)

    def loop_over_others(edge):
        for a in [1, 2]:
            yield a

    assert "a loop of a rule is over one of its relations" in refused(loop_over_others)

    def while_loop(edge):
        while True:
            yield 1

    assert "a rule has no while" in refused(while_loop)

    def after_its_loop(edge):
        for a, _b in edge:
            pass
        yield a

    assert "'a' is not bound here" in refused(after_its_loop)

    def set_sum(edge):
        for a, _ in edge:
            yield a, sum({y for x, y in edge if x == a})

    assert "adds equal values once" in refused(set_sum)

    def nested(edge):
        for a, _ in edge:
            n = len({y for x, y in edge if x == a})
            yield a, sum(1 for x, y in edge if y > n)

    assert "an aggregate depends on another one's result" in refused(nested)

    def without_comprehension(edge):
        for a, b in edge:
            if any(edge):
                yield a, b

    assert "'any' is of a comprehension, and a condition" in refused(without_comprehension)

    def method(name):
        for n in name:
            yield n.upper()

    assert "cannot compute `n.upper()`" in refused(method)
    with pytest.raises(DomainError, match="the rule 'path' is 2, not in"):
        dv.rule(probability=2)(path.function)
    with pytest.raises(DomainError, match=r"write `@dv\.rule`"):
        dv.Program.from_rules(path.function)
    namespace: dict = {}
    exec("def f(edge):\n    yield 1", namespace)
    with pytest.raises(DomainError, match="is not at hand"):
        dv.rule(namespace["f"])


def test_errors_of_types_have_their_place_in_the_file():
    @dv.rule
    def mixed(name):
        for n in name:
            yield n + 1

    with pytest.raises(TypeMismatchError, match=r"test_python_rules\.py") as caught:
        dv.Program.from_rules(mixed, text="type name(String)")
    assert "yield n + 1" in str(caught.value)
    assert not isinstance(caught.value, ParseError)
