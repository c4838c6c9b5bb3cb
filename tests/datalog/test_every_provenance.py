"""Every provenance, by every name, against its definition: worlds, or the derivations of small programs by loops."""

import itertools
import math
import pickle

import numpy as np
import pytest

import derivable as dv
from datalog.worlds import probabilities
from derivable.algebra import dual, laws
from derivable.core.diagnostics import DomainError, UnsupportedError
from derivable.datalog.tags.provenance import PROVENANCES, provenance_of

# Layers of two nodes: all derivations of a path come in the same round, so that sums that are passed on once are whole.
EDGES = {(0, 2): 0.5, (0, 3): 0.75, (1, 3): 0.25, (2, 4): 0.5, (3, 4): 0.625, (3, 5): 0.875}
CLOSURE = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nquery p"
USED = {2: 0.5, 3: 0.75}
NEGATION = """
type e(i32, i32), u(i32)
rel r(x, y) = e(x, y), u(y)
rel r(x, y) = e(x, z), e(z, y), not u(z)
query r
"""


class Sums:
    """Python functions of two tags, and the tag of a fact of that probability and number."""

    def __init__(self, plus, times, negate, zero=0.0, one=1.0, fact=lambda p, number: p):
        self.plus, self.times, self.negate, self.zero, self.one, self.fact = plus, times, negate, zero, one, fact


def noisy_or(a, b):
    return 1 - (1 - a) * (1 - b)


def product(a, b):
    return a * b


def complement(a):
    return 1 - a


def joined_sets(a, b):
    return frozenset(x | y for x, y in itertools.product(a, b))


def surprise(p, number):
    return -math.log(p)


def missing(zero, one):
    """Set difference: a tuple with a negated tuple that is there is not."""
    return lambda tag: one if tag == zero else zero


SUMS = {
    "minmaxprob": Sums(max, min, complement),
    "addmultprob": Sums(lambda a, b: min(a + b, 1.0), product, complement),
    "nandmultprob": Sums(noisy_or, product, complement),
    "maxmultprob": Sums(max, product, complement),
    "max_product": Sums(max, product, complement),
    "nandminprob": Sums(noisy_or, min, complement),
    "real": Sums(lambda a, b: a + b, product, complement),
    "counting": Sums(lambda a, b: a + b, product, missing(0, 1), 0, 1, lambda p, number: 1),
    "bool": Sums(max, min, complement, False, True, lambda p, number: True),
    "boolean": Sums(max, min, complement, False, True, lambda p, number: True),
    "min_plus": Sums(min, lambda a, b: a + b, missing(math.inf, 0.0), math.inf, 0.0),
    "max_plus": Sums(max, lambda a, b: a + b, missing(-math.inf, 0.0), -math.inf, 0.0),
    "log": Sums(
        np.logaddexp,
        lambda a, b: a + b,
        lambda a: np.log1p(-np.exp(a)),
        -math.inf,
        0.0,
        lambda p, number: math.log(p),
    ),
    "proofs": Sums(
        lambda a, b: a | b,
        joined_sets,
        None,
        frozenset(),
        frozenset([frozenset()]),
        lambda p, number: frozenset([frozenset([number])]),
    ),
}
OF_WORLDS = ("exact", "topkproofs", "samplekproofs", "topbottomkclauses")
SCALLOP = {
    "unit": "boolean",
    "natural": "counting",
    "tropical": "min_plus",
    "realtropical": "min_plus",
    "minmaxprob": "godel",
    **{f"diff{name}": name for name in ("addmultprob", "nandmultprob", "maxmultprob", "nandminprob")},
    **{f"diff{name}2": name for name in ("addmultprob", "nandmultprob", "maxmultprob")},
    "diffminmaxprob": "godel",
    "difftopkproofs": "topkproofs",
    "difftopkproofsdebug": "topkproofsdebug",
    "diffsamplekproofs": "samplekproofs",
    "difftopbottomkclauses": "topbottomkclauses",
    "minmax": "godel",
    "addmult": "addmultprob",
    "nandmult": "nandmultprob",
    "maxmult": "maxmultprob",
    "nandmin": "nandminprob",
    "topk": "topkproofs",
    "samplek": "samplekproofs",
    "clauses": "topbottomkclauses",
}


@pytest.mark.parametrize("name", SCALLOP)
def test_a_name_of_scallop_is_one_of_ours(name):
    assert provenance_of(name) is provenance_of(SCALLOP[name])
    assert name in PROVENANCES.known()


def test_every_provenance_has_a_definition_here():
    names = {"minmaxprob" if name == "godel" else name for name in PROVENANCES.names()}
    assert names == {*SUMS, *OF_WORLDS, "topkproofsdebug", "realtropicalproofs"}


@pytest.mark.parametrize("name", ["difftopkprofs", "topkprofs", "minmaxprobs", "diffnandmultprobs"])
def test_an_unknown_name_shows_the_nearest(name):
    with pytest.raises(DomainError, match=r"did you mean '\w*(topk|minmax|nandmult)"):
        dv.Program(CLOSURE).run({"e": EDGES}, provenance=name)


def summed(sums, derivations):
    """The tag of each row from (row, tags of its derivation)."""
    found = {}
    for row, tags in derivations:
        tag = sums.one
        for other in tags:
            tag = sums.times(tag, other)
        found[row] = sums.plus(found.get(row, sums.zero), tag)
    return {row: tag for row, tag in found.items() if tag != sums.zero}


def paths_of(sums):
    """The derivations of paths by their length, longest last."""
    tags = {edge: sums.fact(p, number) for number, (edge, p) in enumerate(EDGES.items())}
    steps = [[(edge, (tag,)) for edge, tag in tags.items()]]
    while steps[-1]:
        steps.append(
            [((x, y), (*used, tag)) for (x, z), used in steps[-1] for (start, y), tag in tags.items() if start == z]
        )
    return summed(sums, itertools.chain(*steps))


def negation_of(sums):
    tags = {edge: sums.fact(p, number) for number, (edge, p) in enumerate(EDGES.items())}
    used = {x: sums.fact(p, len(EDGES) + number) for number, (x, p) in enumerate(USED.items())}
    derivations = [((x, y), (tag, used[y])) for (x, y), tag in tags.items() if y in used]
    for ((x, z), a), ((start, y), b) in itertools.product(tags.items(), tags.items()):
        if start == z:
            derivations.append(((x, y), (a, b, sums.negate(used[z]) if z in used else sums.one)))
    return summed(sums, derivations)


def model_of(facts):
    edges, used = facts.get("e", []), {x for (x,) in facts.get("u", [])}
    paths = set(edges)
    while more := {(x, y) for x, z in paths for start, y in edges if start == z} - paths:
        paths |= more
    bodies = {(x, y) for x, y in edges if y in used}
    bodies |= {(x, y) for x, z in edges if z not in used for start, y in edges if start == z}
    return {"p": paths, "r": bodies}


@pytest.fixture(scope="module")
def of_worlds():
    facts = [("e", edge, p) for edge, p in EDGES.items()] + [("u", (x,), p) for x, p in USED.items()]
    found = probabilities(facts, (), model_of)
    return {name: {row: p for (relation, row), p in found.items() if relation == name} for name in "pr"}


def run(name, text, relation, facts):
    view = dv.Program(text).run(facts, provenance=name, k=100)[relation]
    return dict.fromkeys(view, True) if view.tags is None else dict(view)


@pytest.mark.parametrize("name", [*SUMS, *OF_WORLDS])
def test_a_recursion(name, of_worlds):
    expected = paths_of(SUMS[name]) if name in SUMS else of_worlds["p"]
    found = run(name, CLOSURE, "p", {"e": EDGES})
    assert found == expected if name == "proofs" else found == pytest.approx(expected)


@pytest.mark.parametrize("name", [name for name in (*SUMS, *OF_WORLDS) if name != "proofs"])
def test_a_negation(name, of_worlds):
    expected = negation_of(SUMS[name]) if name in SUMS else of_worlds["r"]
    assert run(name, NEGATION, "r", {"e": EDGES, "u": USED}) == pytest.approx(expected)


@pytest.mark.slow
def test_sixteen_facts_in_all_their_worlds():
    random = np.random.default_rng(5)
    edges = {(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 1), (3, 4), (4, 0), (4, 5), (5, 3), (5, 2)}
    chances = random.uniform(0.1, 0.9, 16).tolist()
    facts = {"e": dict(zip(sorted(edges), chances)), "u": {(x,): p for x, p in zip((1, 2, 4, 5), chances[12:])}}
    listed = [(relation, row, p) for relation, rows in facts.items() for row, p in rows.items()]
    expected = probabilities(listed, (), model_of)
    for name in OF_WORLDS:
        for text, relation in ((CLOSURE, "p"), (NEGATION, "r")):
            given = facts if relation == "r" else {"e": facts["e"]}
            found = dv.Program(text).run(given, provenance=name, k=10_000)[relation]
            wanted = {row: p for (own, row), p in expected.items() if own == relation}
            assert dict(found) == pytest.approx(wanted), name


def test_proofs_name_every_fact():
    """Those without tags too, in the order in which they are given; ~n is the absence of fact n."""
    text = "rel a(1)\nrel b = {1, 2}\ntype c(i32)\nrel r(x) = a(x), b(x), c(x)\nrel r(x) = b(x), not c(x)\nquery r"
    program = dv.Program(text)
    db = program.run({"c": [1]}, provenance="proofs", keep=True)
    assert dict(db["r"]) == {(1,): {frozenset({0, 1, 3}), frozenset({1, ~3})}, (2,): {frozenset({2})}}
    assert str(db["r"]) == "{{{1, -4}, {0, 1, 3}}::(1), {{2}}::(2)}"
    weather = 'rel w = {0.25::"sun"; 0.75::"rain"}\nrel both() = w("sun"), w("rain")\nrel any() = w(_)\nquery any'
    assert dict(dv.Program(weather).run(provenance="proofs")["any"]) == {(): {frozenset({0}), frozenset({1})}}
    # Where there are no probabilities, facts that exclude each other may be as likely as they like.
    sides = "rel side = {1.0::1; 1.0::2; 0.5::3} rel any() = side(_) rel both(a, b) = side(a), side(b)"
    found = dv.Program(sides).run(provenance="proofs")
    assert dict(found["any"]) == {(): {frozenset({i}) for i in range(3)}}
    assert dict(found["both"]) == {(i + 1, i + 1): {frozenset({i})} for i in range(3)}
    with pytest.raises(dv.DerivableError, match=r"add up to 2\.5"):
        dv.Program(sides).run(provenance="topkproofs")
    with pytest.raises(UnsupportedError, match="proofs gives sets of facts"):
        dv.nn.Logic(CLOSURE, {"e": dv.independent(list(EDGES))}, {"p": [(0, 4)]}, provenance="proofs")


def test_debugging_shows_proofs(of_worlds):
    found = run("difftopkproofsdebug", CLOSURE, "p", {"e": EDGES})
    assert {row: p for row, (p, _) in found.items()} == pytest.approx(of_worlds["p"])
    assert {row: proofs for row, (_, proofs) in found.items()} == paths_of(SUMS["proofs"])
    facts = {"e": EDGES, "u": USED}
    assert run("topkproofsdebug", NEGATION, "r", facts)[0, 4][1] == {frozenset({0, 3, ~6}), frozenset({1, 4, ~7})}
    best = dv.Program(CLOSURE).run({"e": EDGES}, provenance="topkproofsdebug", k=1)["p"][0, 4]
    assert best == (0.75 * 0.625, {frozenset({1, 4})})


def test_the_shortest_proof():
    found = run("realtropicalproofs", CLOSURE, "p", {"e": EDGES})
    assert {row: length for row, (length, _) in found.items()} == pytest.approx(paths_of(SUMS["min_plus"]))
    assert found[0, 4][1] == {0, 3}
    assert found[1, 4][1] == {2, 4}
    text = "type p(i32), q(i32)\nrel r(x) = p(x), not q(x)\nquery r"
    found = run("realtropicalproofs", text, "r", {"p": {1: 370.0, 2: 5.0}, "q": {1: 0.5}})
    assert found == {(2,): (5.0, {1})}


def first_tags(sums, edges):
    """The closure as semi-naive rounds have it whose tuples pass on the tags that they had when they were new."""
    total = dict(edges)
    new = dict(total)
    while new:
        derived = {}
        for ((x, z), a), ((start, y), b) in itertools.product(new.items(), edges.items()):
            if start == z:
                derived[x, y] = sums.plus(derived.get((x, y), sums.zero), sums.times(a, b))
        new = {row: tag for row, tag in derived.items() if row not in total}
        total = {row: sums.plus(total.get(row, sums.zero), derived.get(row, sums.zero)) for row in total | derived}
    return total


@pytest.mark.parametrize("name", ["natural", "addmultprob", "nandmultprob", "nandminprob"])
def test_rounds_as_in_scallop(name):
    """Where sums have no end; only counting refuses them by default."""
    edges = {**EDGES, (4, 0): 0.5, (5, 1): 0.25, (4, 2): 0.75}
    sums = SUMS["counting" if name == "natural" else name]
    tags = {edge: sums.fact(p, number) for number, (edge, p) in enumerate(edges.items())}
    db = dv.Program(CLOSURE, compatible=True).run({"e": tags}, provenance=name)
    assert dict(db["p"]) == pytest.approx(first_tags(sums, tags))
    if name == "natural":
        with pytest.raises(UnsupportedError, match="derived from itself"):
            run(name, CLOSURE, "p", {"e": edges})


DUALS = [("minmaxprob", "maxmultprob"), ("bool", "min_plus"), ("addmultprob", "real"), ("log", "nandminprob")]


@pytest.mark.parametrize(("first", "second"), DUALS)
def test_a_dual_is_two_semirings(first, second):
    record = dual(first, second)
    assert dual(first, second) is record
    assert pickle.loads(pickle.dumps(record)).name == record.name
    assert laws.first_violation(record) is None
    for text, relation, facts in ((CLOSURE, "p", {"e": EDGES}), (NEGATION, "r", {"e": EDGES, "u": USED})):
        halves = [run(name, text, relation, facts) for name in (first, second)]
        found = run(record, text, relation, facts)
        if relation == "p" or SUMS[second].negate is complement:
            for place, half in enumerate(halves):
                assert {row: tag[place] for row, tag in found.items()} == pytest.approx(half)
        else:
            # Both halves are dropped where one is.
            assert {row: tag[1] for row, tag in found.items()} == pytest.approx(halves[1])


@pytest.mark.slow
def test_a_layer_of_a_dual():
    torch = pytest.importorskip("torch")
    inputs, outputs = {"e": dv.independent(list(EDGES))}, {"p": [(0, 4), (1, 4), (4, 0)]}
    names = "minmaxprob", "maxmultprob"
    chances = torch.tensor([0.51, 0.73, 0.27, 0.43, 0.62, 0.88], dtype=torch.float64, requires_grad=True)
    found = dv.nn.Logic(CLOSURE, inputs, outputs, provenance=dual(*names))(chances)
    for values, name in zip(found, names):
        expected = dv.nn.Logic(CLOSURE, inputs, outputs, provenance=name)(chances)
        torch.testing.assert_close(values, expected)
        pair = [torch.autograd.grad(x.sum(), chances, retain_graph=True)[0] for x in (values, expected)]
        torch.testing.assert_close(*pair)
    with pytest.raises(UnsupportedError, match="exact Python integers"):
        dual("counting", "real")


def test_bool_looks_at_tags():
    facts = {"e": {(0, 1): True, (1, 2): 0.0, (2, 3): 0.5, (3, 4): 1}}
    facts = {"e": [(float(tag), edge) for edge, tag in facts["e"].items()]}
    assert run("bool", CLOSURE, "p", facts) == {(0, 1): True, (2, 3): True, (2, 4): True, (3, 4): True}
    assert len(run("unit", CLOSURE, "p", facts)) == 10


@pytest.mark.parametrize("seed", range(3))
def test_samples_are_drawn_by_probability(seed):
    """One of three proofs by their probabilities, and the same one for the same seed."""
    text = "type q(i32)\nrel r() = q(x)"
    counts = dict.fromkeys((0.1, 0.3, 0.6), 0)
    for number in range(200):
        facts = {"q": [(p, (i,)) for i, p in enumerate(counts)]}
        found = dv.Program(text).run(facts, provenance="samplekproofs", k=1, seed=200 * seed + number)["r"][()]
        assert found == dv.Program(text).run(facts, provenance="samplek", k=1, seed=200 * seed + number)["r"][()]
        counts[round(found, 9)] += 1
    for p, count in counts.items():
        assert abs(count - 200 * p) < 4 * math.sqrt(200 * p * (1 - p))


def test_a_negation_costs_clauses_no_proof():
    """The negation of two proofs of two facts has four proofs, and is two clauses; the least probable ones are kept."""
    text = "rel a = {%s}\nrel some() = a(0), a(1)\nrel some() = a(2), a(3)\nrel no() = not some()\nquery no"
    text %= "0.5::0, 0.75::1, 0.25::2, 0.5::3"
    exact = (1 - 0.375) * (1 - 0.125)
    found = {name: dv.Program(text).run(provenance=name, k=2)["no"][()] for name in ("topk", "clauses", "exact")}
    assert found["clauses"] == pytest.approx(exact) == found["exact"]
    assert found["topk"] == pytest.approx(0.5 * (1 - 0.25 * 0.5))
    text = "rel a = {0.125::0, 0.5::1, 0.25::2}\nrel no() = not a(0), not a(1), not a(2)\nquery no"
    assert dv.Program(text).run(provenance="clauses", k=2)["no"][()] == pytest.approx(0.5 * 0.75)


DIFFERENTIABLE = [name for name in PROVENANCES.known() if name.startswith("diff")]


@pytest.mark.parametrize("name", [*DIFFERENTIABLE, "nandmult", "clauses", "samplek"])
def test_gradients_are_finite_differences(name):
    torch = pytest.importorskip("torch")
    layer = dv.nn.Logic(
        NEGATION,
        {"e": dv.independent(list(EDGES)), "u": dv.independent(list(USED))},
        {"r": [(0, 4), (1, 4), (0, 3), (5, 0)]},
        provenance=name,
        k=4,
    )
    # No two are equal, nor their complements, so that maxima have derivatives.
    chances = torch.tensor(
        [[0.51, 0.73, 0.27, 0.43, 0.62, 0.88, 0.35, 0.79], [0.9, 0.2, 0.45, 0.7, 0.6, 0.3, 0.15, 0.56]]
    )
    chances = chances.double().requires_grad_()
    found = layer(chances[:, :6], chances[:, 6:])
    assert found.shape == (2, 4)
    assert found[:, 3].tolist() == [0.0, 0.0]
    for row, values in enumerate(chances.tolist()):
        facts = {"e": dict(zip(EDGES, values)), "u": dict(zip(USED, values[6:]))}
        expected = dict(dv.Program(NEGATION).run(facts, provenance=name.removesuffix("debug"), k=4)["r"])
        for place, tuple_ in enumerate([(0, 4), (1, 4), (0, 3)]):
            assert found[row, place].item() == pytest.approx(expected.get(tuple_, 0.0))
    assert torch.autograd.gradcheck(lambda p: layer(p[:, :6], p[:, 6:]), (chances,), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("name", [*SUMS, *OF_WORLDS, "topkproofsdebug", "realtropicalproofs"])
def test_facts_are_added_to_a_run(name):
    """Those of a database and of its copy; where tags are whole sums, the same as of one run."""
    program, edges = dv.Program(CLOSURE), list(EDGES.items())
    db = program.run({"e": dict(edges[:3])}, provenance=name, k=100, keep=True)
    copied = db.fork()
    db.add({"e": dict(edges[3:])})
    copied.add({"e": {(7, 0): 0.5}})
    whole = program.run({"e": dict(edges)}, provenance=name, k=100)["p"]
    assert set(db["p"]) == set(whole)
    assert set(copied["p"]) == {edge for edge, _ in edges[:3]} | {(7, 0), (7, 2), (7, 3)}
    if "prob" not in name or name in ("minmaxprob", "maxmultprob"):
        for row, tag in whole.items():
            if isinstance(tag, (tuple, frozenset)):
                assert db["p"][row] == tag
            else:
                assert db["p"][row] == pytest.approx(tag)


COUNT = "type u(i32)\nrel n(c) = c := count(x: u(x))\nrel t(c) = c := sum(x: u(x))\nquery n\nquery t"


@pytest.mark.parametrize("name", ["nandmult", "nandmin", "addmult", "minmax", "clauses"])
def test_layers_count_worlds_as_runs_do(name):
    """Where sums do not distribute, each world is kept apart."""
    torch = pytest.importorskip("torch")
    chances = [0.5, 0.25, 0.75, 0.875]
    db = dv.Program(COUNT).run({"u": dv.independent(range(4), chances)}, provenance=name, k=20)
    outputs = {"n": range(5), "t": range(7)}
    layer = dv.nn.Logic(COUNT, {"u": dv.independent(range(4))}, outputs, provenance=name, k=20)
    found = layer(torch.tensor(chances, dtype=torch.float64))
    for relation, values in outputs.items():
        expected = [dict(db[relation]).get((value,), 0.0) for value in values]
        assert found[relation].tolist() == pytest.approx(expected)


# Classes of one's own


class Noisy:
    """Scallop's diffnandmultprob2, on whatever numbers tags are."""

    def zero(self):
        return 0.0

    def one(self):
        return 1.0

    def add(self, a, b):
        return 1 - (1 - a) * (1 - b)

    def mult(self, a, b):
        return a * b

    def negate(self, a):
        return 1 - a


class NoisyColumns(Noisy):
    columns = True


class Lengths(dv.datalog.Provenance):
    """Scallop's realtropicalproofs: the length of the shortest derivation, and the facts that it uses."""

    def zero(self):
        return math.inf, frozenset()

    def one(self):
        return 0.0, frozenset()

    def add(self, a, b):
        return min(b, a, key=lambda tag: tag[0])

    def mult(self, a, b):
        return a[0] + b[0], a[1] | b[1]

    def negate(self, tag):
        return None

    def discard(self, tag):
        return math.isinf(tag[0])

    def tagging_fn(self, tag):
        length, name = tag
        return length, frozenset([name])

    def recover_fn(self, tag):
        return round(tag[0], 9), "".join(sorted(tag[1]))


@pytest.mark.parametrize("own", [Noisy, NoisyColumns])
def test_a_class_is_a_provenance(own):
    expected = SUMS["nandmultprob"]
    for text, relation, meaning in ((CLOSURE, "p", paths_of), (NEGATION, "r", negation_of)):
        found = run(own(), text, relation, {"e": EDGES, "u": USED} if relation == "r" else {"e": EDGES})
        assert found == pytest.approx(meaning(expected))


def test_tags_of_a_class_are_any_objects():
    letters = {edge: (p, letter) for (edge, p), letter in zip(EDGES.items(), "abcdef")}
    found = run(Lengths(), CLOSURE, "p", {"e": letters})
    assert found[0, 4] == (1.0, "ad")
    assert found[1, 4] == (0.875, "ce")
    assert {row: length for row, (length, _) in found.items()} == pytest.approx(paths_of(SUMS["min_plus"]))
    rows = [((1.0, "a"), (1, 2)), (None, (2, 3)), ((math.inf, "b"), (3, 4))]
    assert run(Lengths(), CLOSURE, "p", {"e": rows}) == {(1, 2): (1.0, "a"), (1, 3): (1.0, "a"), (2, 3): (0.0, "")}


def test_a_negation_of_none_drops_the_tuple():
    text = "type p(i32), q(i32)\nrel r(x) = p(x), not q(x)"
    facts = {"p": {(1,): (0.5, "a"), (2,): (0.25, "b")}, "q": {(1,): (0.5, "c")}}
    assert run(Lengths(), text, "r", facts) == {(2,): (0.25, "b")}


def test_a_class_aggregates():
    text = "type q(i32, String)\nrel n(k, c) = c := count(x: q(k, x))\nrel u(k, x) = x := unique(x: q(k, x))"
    text += "\nrel a(k, b) = b := exists(x: q(k, x))"
    facts = {"q": [(0.5, (1, "a")), (0.25, (1, "b")), (0.125, (2, "c"))]}
    none, one, two = 0.5 * 0.75, 0.5 * 0.25 + 0.5 * 0.75, 0.5 * 0.25
    worlds = run(Noisy(), text, "n", facts)
    assert worlds[1, 2] == pytest.approx(two)
    assert worlds[2, 1] == pytest.approx(0.125)
    assert worlds[1, 1] == pytest.approx(1 - (1 - 0.5 * 0.75) * (1 - 0.5 * 0.25)) != none + one

    class Own(Noisy):
        def aggregate_count(self, rows):
            return [(max(tag for tag, _ in rows), len(rows))]

        def aggregate_unique(self, rows):
            return [rows[-1]]

        def aggregate_exists(self, rows):
            return [(self.one(), len(rows) > 1)]

    assert run(Own(), text, "n", facts) == {(1, 2): 0.5, (2, 1): 0.125}
    assert run(Own(), text, "u", facts) == {(1, "b"): 0.25, (2, "c"): 0.125}
    assert run(Own(), text, "a", facts) == {(1, True): 1.0, (2, False): 1.0}


def test_facts_are_added_to_a_run_of_a_class():
    db = dv.Program(CLOSURE).run({"e": [(0.5, (0, 1))]}, provenance=Noisy(), keep=True)
    db.add({"e": [(0.25, (1, 2)), (0.5, (0, 2))]})
    assert dict(db["p"]) == pytest.approx({(0, 1): 0.5, (1, 2): 0.25, (0, 2): 1 - 0.5 * 0.875})


@pytest.mark.parametrize("own", [Noisy, NoisyColumns])
def test_a_layer_of_a_class_has_torch_gradients(own):
    torch = pytest.importorskip("torch")
    inputs = {"e": dv.independent(list(EDGES)), "u": dv.independent(list(USED))}
    outputs = {"r": [(0, 4), (0, 3), (5, 0)]}
    chances = torch.tensor([[*EDGES.values(), *USED.values()], [0.5] * 8], dtype=torch.float64)
    results = []
    for provenance in (own(), "nandmultprob"):
        layer = dv.nn.Logic(NEGATION, inputs, outputs, provenance=provenance)
        given = chances.clone().requires_grad_()
        found = layer(given[:, :6], given[:, 6:])
        (found * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
        results.append((found.detach(), given.grad))
    torch.testing.assert_close(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1])

    class Collated(own):
        def collate(self, batch):
            return torch.stack(
                [torch.stack([torch.tensor(-1.0) if tag is None else tag for tag in row]) for row in batch]
            )

    layer = dv.nn.Logic(NEGATION, inputs, outputs, provenance=Collated())
    assert layer(chances[:, :6].float(), chances[:, 6:].float())[:, 2].tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("own", [Noisy, NoisyColumns])
def test_a_batch_of_facts_that_differ(own):
    torch = pytest.importorskip("torch")
    samples = [
        ([(0, 1), (1, 2), (0, 2)], torch.tensor([0.5, 0.25, 0.5], dtype=torch.float64, requires_grad=True)),
        ([(0, 2)], torch.tensor([0.75], dtype=torch.float64, requires_grad=True)),
        ([(1, 2)], torch.tensor([0.125], dtype=torch.float64, requires_grad=True)),
    ]
    results = []
    for provenance in (own(), "nandmultprob"):
        layer = dv.nn.Logic(CLOSURE, {"e": dv.varying()}, {"p": [(0, 2), (1, 2)]}, provenance=provenance)
        found = layer(e=samples)
        given = [p for _, p in samples]
        gradients = torch.autograd.grad((found * torch.tensor([1.0, 3.0])).sum(), given)
        results.append((found, gradients))
    torch.testing.assert_close(results[0], results[1])
    assert results[0][0].tolist() == [[0.5625, 0.25], [0.75, 0.0], [0.0, 0.125]]
    with pytest.raises(dv.DerivableError, match="are no numbers"):
        dv.nn.Logic(CLOSURE, {"e": dv.varying()}, {"p": [(0, 2)]}, provenance="realtropicalproofs")(e=samples)


def test_tags_may_be_torch_scalars_in_a_run():
    torch = pytest.importorskip("torch")
    chances = [torch.tensor(p, requires_grad=True) for p in EDGES.values()]
    found = dv.Program(CLOSURE).run({"e": list(zip(chances, EDGES))}, provenance=Noisy())["p"][0, 4]
    found.backward()
    assert found.item() == pytest.approx(1 - 0.75 * (1 - 0.75 * 0.625))
    assert chances[0].grad.item() == pytest.approx(0.5 * (1 - 0.75 * 0.625))


def test_classes_that_are_none():
    class NoAdd(dv.datalog.Provenance):
        def zero(self):
            return 0.0

        def one(self):
            return 1.0

        def mult(self, a, b):
            return a * b

    class Wrong(Noisy):
        def mult(self, a, b):
            return a.nothing

    with pytest.raises(DomainError, match="NoAdd has no `add`"):
        run(NoAdd(), CLOSURE, "p", {"e": EDGES})
    with pytest.raises(DomainError, match="NoAdd has no `add`"):
        NoAdd().add(1, 2)
    with pytest.raises(DomainError, match="a provenance is a name, a Semiring or an object") as caught:
        run(Noisy, CLOSURE, "p", {"e": EDGES})
    assert "Noisy()" in caught.value.hint
    with pytest.raises(DomainError, match=r"`mult` of the provenance Wrong fails on .* with AttributeError"):
        run(Wrong(), CLOSURE, "p", {"e": EDGES})
    Positive = type("Positive", (Noisy,), {"negate": None})
    with pytest.raises(UnsupportedError, match="Positive does not say what the tag of a negated tuple is"):
        run(Positive(), NEGATION, "r", {"e": EDGES, "u": USED})
