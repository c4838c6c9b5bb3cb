"""Transitive rules that are made linear among other rules of their recursion mean the same."""

import random
from pathlib import Path

import numpy as np
import pytest

import derivable as dv
from datalog.naive import text_of
from derivable.datalog.ram.check import check_ram
from derivable.datalog.rules.text import rule_text
from derivable.datalog.rules.transitive_rules import BASE, linear, transitive_relations

# Facts that no rule reads: runs with few facts are as their rules are written.
MORE = np.arange(64)[:, None]

ARITIES = {"e": 2, "u": 1, "r": 2, "v": 3, "p": 2, "q": 3, "s": 2, "g": 3}
INPUTS = ("e", "u", "r", "v")
TRANSITIVE = {"p": "p(x,z) p(x,y) p(y,z)", "s": "s(x,z) s(x,y) s(y,z)", "g": "g(x,w,z) g(x,w,y) g(y,w,z)"}
# Rules that keep one side of p, rules that only seem to, steps of p on rows of q, and what begins p with q.
RULES = [
    "p(x,y) e(x,y)",
    "p(x,z) p(x,y) r(y,z)",
    "p(x,z) r(x,y) p(y,z)",
    "p(x,z) p(x,y) q(y,w,z)",
    "p(x,z) p(x,y) u(z)",
    "p(x,2) p(x,y) u(y)",
    "p(x,z) p(x,y) p(z,y) r(y,z)",
    "p(x,z) p(x,y) r(y,z) u(x)",
    "p(x,x) p(x,y) r(y,x)",
    "p(y,x) p(x,y) r(x,y)",
    "p(x,z) r(x,y) p(y,w) r(w,z)",
    "p(x,z) v(y,w,z) p(x,y) p(x,w)",
    "p(x,z) p(y,w) v(w,w,z) q(x,w,y)",
    "p(x,z) q(x,y,z)",
    "p(x,y) s(x,y)",
    "q(x,w,z) v(x,w,z)",
    "q(x,w,z) p(x,y) q(y,w,z)",
    "q(x,w,z) q(x,w,y) p(y,z)",
    "q(x,w,z) p(y,x) q(y,w,z)",
    "q(x,w,z) q(x,y,z) p(y,w)",
    "q(x,w,x) p(x,y) q(y,w,x)",
    "q(w,x,z) p(x,y) q(y,w,z)",
    "q(x,w,z) p(x,y) q(y,w,z) u(w)",
    "q(x,x,z) p(x,y) q(y,y,z)",
    "q(x,w,z) p(x,y) q(y,w,z) u(y)",
    "s(x,y) r(x,y)",
    "s(x,z) s(x,y) p(y,z)",
    "s(y,x) p(x,y) u(x)",
    "g(x,w,z) v(x,w,z)",
    "g(x,w,z) g(x,w,y) v(y,w,z)",
    "g(x,w,z) v(x,w,y) g(y,w,z)",
    "g(x,w,z) g(x,w,y) p(y,z)",
    "g(x,y,z) g(x,w,y) p(w,z)",
    "p(x,z) g(x,w,z)",
]


def rule_of(text):
    """A rule as `naive` has it."""
    head, *body = [
        (name, tuple(int(a) if a.isdigit() else a for a in arguments.rstrip(")").split(",")))
        for name, _, arguments in (atom.partition("(") for atom in text.split())
    ]
    return (*head, [("+", *atom) for atom in body])


def random_rule(draw):
    """A rule of two or three atoms with variables anywhere, a negation now and then."""
    head = draw.choice("ppqs")
    while True:
        atoms = [draw.choice(("p", "p", "q", "s", "e", "r", "u")) for _ in range(draw.choice((2, 2, 3)))]
        body = [("+", name, tuple(draw.choice("wxyz") for _ in range(ARITIES[name]))) for name in atoms]
        bound = sorted({a for _, _, arguments in body for a in arguments})
        if len(bound) >= 2:
            break
    if draw.random() < 0.2:
        body.append(("-", "r", tuple(draw.choice(bound) for _ in range(2))))
    return head, tuple(draw.choice(bound) for _ in range(ARITIES[head])), body


def drawn(number):
    """(rules, facts) of a random program in which p is transitive."""
    draw = random.Random(number)
    rules = [rule_of(TRANSITIVE["p"]), rule_of("p(x,y) e(x,y)"), rule_of("q(x,w,z) v(x,w,z)")]
    rules += map(rule_of, draw.sample(RULES, draw.randint(1, 5)))
    rules += [rule_of(text) for name, text in TRANSITIVE.items() if name != "p" and draw.random() < 0.3]
    rules += [random_rule(draw) for _ in range(draw.choice((0, 0, 1, 2)))]
    facts = {
        name: sorted({tuple(draw.randrange(4) for _ in range(ARITIES[name])) for _ in range(draw.randint(0, 5))})
        for name in INPUTS
    }
    # Relations that no rule is for have facts as well.
    heads = {rule[0] for rule in rules}
    facts |= {name: [] for name in ARITIES if name not in INPUTS and name not in heads}
    return rules, facts


def declared(rules):
    lines = [f"type {name}({', '.join(['i32'] * arity)})" for name, arity in ARITIES.items() if name not in "eu"]
    return text_of(rules) + "\n" + "\n".join(lines) + "\ntype more(i32)\nquery p\nquery q\nquery s\nquery g"


def solutions(body, model):
    """The assignments under which all atoms hold, one atom after the other; negated ones come last."""
    worlds = [{}]
    for kind, name, arguments in body:
        if kind == "-":
            worlds = [w for w in worlds if tuple(w[a] for a in arguments) not in model[name]]
            continue
        wider = []
        for world in worlds:
            for row in model[name]:
                made = dict(world)
                if all(
                    made.setdefault(a, value) == value if isinstance(a, str) else a == value
                    for a, value in zip(arguments, row)
                ):
                    wider.append(made)
        worlds = wider
    return worlds


def least_model(rules, facts):
    model = {name: set(facts.get(name, ())) for name in ARITIES}
    while True:
        size = sum(map(len, model.values()))
        for head, arguments, body in rules:
            model[head] |= {tuple(world.get(a, a) for a in arguments) for world in solutions(body, model)}
        if size == sum(map(len, model.values())):
            return model


def compare(numbers):
    """How many of these programs have relations with a base."""
    count = 0
    for number in numbers:
        rules, facts = drawn(number)
        program = dv.Program(declared(rules))
        arrays = {name: np.array(rows, np.int32).reshape(-1, ARITIES[name]) for name, rows in facts.items()}
        database = program.run({**arrays, "more": MORE})
        expected = least_model(rules, facts)
        for name in "pqsg":
            assert set(database[name]) == expected[name], (number, name, declared(rules), facts)
        check_ram(database.profile.ram)
        count += any(name.startswith(BASE) for name in database.profile.ram.relations)
    return count


def test_random_recursions():
    assert compare(range(4)) >= 3


@pytest.mark.slow
def test_many_random_recursions():
    assert compare(range(1000, 1250)) >= 150


def linear_rules(*texts):
    """The rules that a program runs instead of these; [] if it runs these."""
    rules = dv.Program(declared(list(map(rule_of, texts)))).desugared()
    names = transitive_relations(rules)
    return sorted(map(rule_text, linear(rules, names).rules)) if names else []


E, P = "p(x,y) e(x,y)", TRANSITIVE["p"]


def test_the_base_has_what_other_rules_derive():
    """As in the ontologies of Galen; q takes steps of the base."""
    assert linear_rules(E, P, "p(x,z) p(y,w) v(w,w,z) q(x,w,y)", "q(x,w,z) p(x,y) q(y,w,z)") == [
        "#base_p(x, y) :- e(x, y)",
        "#base_p(x, z) :- p(y, w), v(w, w, z), q(x, w, y), not p(x, z)",
        "p(x, z) :- #base_p(x, y), p(y, z)",
        "p(x0, x1) :- #base_p(x0, x1)",
        "q(x, w, z) :- #base_p(x, y), q(y, w, z)",
    ]


def test_rules_that_keep_a_side_go_on_from_the_closure():
    assert linear_rules(E, P, "p(x,z) p(x,y) r(y,z)") == [
        "#base_p(x, y) :- e(x, y)",
        "p(x, z) :- p(x, y), #base_p(y, z)",
        "p(x, z) :- p(x, y), r(y, z)",
        "p(x0, x1) :- #base_p(x0, x1)",
    ]
    # Both sides cannot be left out: the second rule goes on from what the first one makes.
    assert linear_rules(E, P, "p(x,z) p(x,y) r(y,z)", "p(x,z) r(x,y) p(y,z)") == [
        "#base_p(x, y) :- e(x, y)",
        "#base_p(x, z) :- r(x, y), p(y, z), not p(x, z)",
        "p(x, z) :- p(x, y), #base_p(y, z)",
        "p(x, z) :- p(x, y), r(y, z)",
        "p(x0, x1) :- #base_p(x0, x1)",
    ]


@pytest.mark.parametrize("rule", ["p(x,z) p(x,y) r(y,z) u(x)", "p(x,x) p(x,y) r(y,y)"])
def test_rules_that_read_what_they_keep_are_of_the_base(rule):
    assert any(text.startswith("#base_p") and "r(" in text for text in linear_rules(E, P, rule))


def test_what_is_left_as_it_is():
    assert linear_rules(E, P) == []
    assert linear_rules(E, P, "p(y,x) p(x,y)") == []
    # Aliases join the relation with itself, in each round.
    assert linear_rules(E, P, "q(x,y,y) p(z,x) p(z,y)", "p(x,z) e(x,y) q(y,z,z)") == []
    assert linear_rules(E, "p(x,z) p(x,y) r(y,z)") == []


def test_relations_with_facts_of_their_own_and_runs_that_go_on():
    program = dv.Program(declared(list(map(rule_of, (E, P, "p(x,z) p(x,y) r(y,z)")))))
    facts = {"e": [(0, 1), (1, 2)], "r": [(2, 3)], "v": [], "q": [], "s": [], "g": [], "u": [], "more": MORE}

    def has_base(database):
        return BASE + "p" in database.profile.ram.relations

    database = program.run(facts)
    assert has_base(database)
    expected = {(0, 1), (1, 2), (0, 2), (1, 3), (0, 3)}
    assert set(database["p"]) == expected
    own = program.run(facts | {"p": [(3, 0)]})
    assert not has_base(own)
    everything = least_model(
        list(map(rule_of, (E, P, "p(x,z) p(x,y) r(y,z)", "p(x,y) s(x,y)"))), facts | {"s": [(3, 0)]}
    )
    assert set(own["p"]) == everything["p"]
    going_on = program.run(facts, keep=True)
    assert not has_base(going_on)
    assert set(going_on["p"]) == expected
    going_on.add({"p": [(3, 0)]})
    assert set(going_on["p"]) == everything["p"]


@pytest.mark.parametrize("provenance", ["minmaxprob", "exact"])
def test_tags_are_those_of_the_rules_as_written(provenance):
    facts = {"e": {(0, 1): 0.5, (1, 2): 0.25}, "r": {(2, 0): 0.75, (1, 1): 0.5}}
    text = "type e(i32, i32), r(i32, i32)\nrel p(x, y) = e(x, y)\nrel p(x, z) = p(x, y), r(y, z)\n"
    linear_form = dv.Program(text + "rel p(x, z) = p(x, y), e(y, z)").run(facts, provenance)["p"]
    rows = dv.Program(text + "rel p(x, z) = p(x, y), p(y, z)").run(facts, provenance)["p"]
    assert dict(rows.items()) == pytest.approx(dict(linear_form.items()))


def matrix(rows, size):
    made = np.zeros((size, size), np.float32)
    made[rows[:, 0], rows[:, 1]] = 1
    return made


def pairs(rows):
    return np.array(sorted(rows), np.int64).reshape(-1, 2)


@pytest.mark.parametrize(("size", "edges"), [(90, 80), (60, 400)], ids=["sparse", "dense"])
def test_kernels_leave_out_what_the_relation_has(size, edges):
    random = np.random.default_rng(size)
    e, r = (random.integers(0, size, (edges, 2)) for _ in range(2))
    program = dv.Program(
        "type e(i32, i32), r(i32, i32)\nrel p(x, y) = e(x, y)\nrel p(x, z) = p(x, y), p(y, z)\n"
        "rel p(x, w) = r(x, y), p(y, z), r(z, w)\nquery p"
    )
    closed, step = matrix(e, size), matrix(r, size)
    while True:
        wider = np.minimum(1, closed + closed @ closed + step @ closed @ step)
        if (wider == closed).all():
            break
        closed = wider
    for _ in range(3):
        rows = list(program.run({"e": e, "r": r})["p"])
        assert len(rows) == len(set(rows))
        assert np.array_equal(pairs(rows), np.argwhere(closed))


@pytest.mark.slow
def test_aliases_in_one_recursion():
    """Rows come in bulk before a kernel looks for them, which only the second run has from its first round on."""
    random, size = np.random.default_rng(10), 220
    assign = random.integers(0, size, (330, 2))
    pointers = random.integers(0, size, (60, 2))
    program = dv.Program((Path(__file__).parents[2] / "benchmarks" / "programs" / "cspa.scl").read_text())
    a, d = matrix(assign, size), matrix(pointers, size)
    ends = np.diag(np.minimum(1, a.sum(0) + a.sum(1)))
    flow, memory, value = np.minimum(1, a + ends), ends, np.zeros_like(a)
    while True:
        before = flow.sum() + memory.sum() + value.sum()
        flow = np.minimum(1, flow + a @ memory + flow @ flow)
        memory = np.minimum(1, memory + d.T @ value @ d)
        value = np.minimum(1, flow.T @ flow + flow.T @ memory @ flow)
        if before == flow.sum() + memory.sum() + value.sum():
            break
    for _ in range(3):
        database = program.run({"assign": assign.astype(np.int32), "dereference": pointers.astype(np.int32)})
        for name, expected in (("flow", flow), ("memory", memory), ("value", value)):
            assert len(database[name]) == expected.sum()
            assert np.array_equal(pairs(database[name]), np.argwhere(expected))
