"""Sets of proofs on devices: the same proofs as the host's, torch on the CPU standing for the device."""

import random
import re

import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog.test_proof_rounds import DETOUR
from datalog.worlds import probabilities
from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.kernels.proof_form import ProofForm
from derivable.datalog.kernels.proofs import ONE, ZERO
from derivable.datalog.tags.proof_lanes import ProofLanes
from derivable.datalog.tags.proof_store import ProofStore
from derivable.datalog.tags.random_facts import RandomFacts
from drawn import examples
from triton_process import printed_by

CLOSURE = "rel p(x, y) = e(x, y) or (p(x, z) and e(z, y))"
RULES = [
    CLOSURE,
    "rel p(x, y) = e(x, y) or (p(x, z) and p(z, y))",
    "rel p(x, y) = e(x, y) or (p(x, z) and e(z, w) and u(w) and e(w, y))",
    "rel q(x) = u(x) or (q(y) and e(y, x))\nrel p(x, y) = q(x), q(y), e(x, y)",
    "rel a(x, y) = e(x, y) or (b(x, z) and e(z, y))\nrel b(x, y) = e(y, x) or (a(x, z), u(z), e(z, y))\n"
    "rel p(x, y) = a(x, y), b(y, x)",
    "rel p(x, y) = e(x, y), p(y, x) or e(x, y), u(x)\nrel d() = p(2, 1), p(x, x)",
    "rel f = {(0, 1), (1, 2), (2, 3), (3, 0)}\ntype f(i32, i32)\n"
    "rel p(x, y) = f(x, y), u(x) or p(x, z), f(z, y), e(z, y) or p(x, z), f(z, y), u(z)",
]
NEGATIONS = [
    "rel r(x, y) = e(x, y), not u(x), not u(y)",
    "rel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nrel r(x) = u(x), not p(x, _)\nrel d() = not p(0, 1)",
    "rel p(x, y) = e(x, y) or (p(x, z) and e(z, y) and not u(z))\nrel o(x, y) = e(x, y), not p(y, x)\n"
    "rel q(x, y) = o(x, y) or (q(x, z) and o(z, y))",
    "rel f = {(0, 1), (1, 2), (2, 0)}\ntype f(i32, i32)\nrel n(x) = e(x, _), not u(x)\nrel m(x) = u(x), not n(x)\n"
    "rel p(x, y) = f(x, y), not m(x) or p(x, z), e(z, y), not n(z)\nrel r(x, y) = f(x, y), not p(y, x), not e(x, y)",
]


@examples(40, 400, st.sampled_from(RULES + NEGATIONS), st.integers(0, 1 << 16), st.sampled_from([1, 2, 3, 5]))
def test_a_device_finds_the_proofs_of_the_host(rules, seed, k):
    """Also where proofs are equally probable, and where facts exclude each other."""
    rng = random.Random(seed)
    text, size, facts = f"type e(i32, i32), u(i32)\n{rules}", rng.randint(3, 6), {}
    chances = [0.5] if rng.random() < 0.4 else [0.5, 0.25, 0.0, 1.0, rng.random(), rng.random()]
    for name, width in (("e", 2), ("u", 1)):
        rows = [
            (rng.choice(chances), tuple(rng.randrange(size) for _ in range(width)))
            for _ in range(rng.randrange(3 * size))
        ]
        if rng.random() < 0.5 or rules in NEGATIONS:
            facts[name] = rows
            continue
        while rows:
            part, rows = rows[:2], rows[2:]
            total = max(1.0, sum(p for p, _ in part))
            listed = "; ".join(f"{p / total}::({', '.join(map(str, row))})" for p, row in part)
            text += f"\nrel {name} = {{{listed}}}"
    program = dv.Program(text)
    on_host, on_device = (program.run(facts, "topkproofsdebug", k=k, device=of) for of in (None, "torch:cpu"))
    for name in on_host:
        assert dict(on_device[name].items()) == dict(on_host[name].items()), name


@pytest.mark.parametrize("rules", NEGATIONS)
def test_negated_tuples_have_the_probabilities_of_worlds(rules):
    """With all proofs, which are at most the worlds."""
    rng = random.Random(rules)
    rows = [("e", pair) for pair in rng.sample([(x, y) for x in range(3) for y in range(3)], 3)]
    rows += [("u", (x,)) for x in range(2)]
    independent = [(*row, rng.random()) for row in rows]
    program = dv.Program(f"type e(i32, i32), u(i32)\n{rules}")

    def model(facts):
        given = {"e": [], "u": []} | facts
        return {name: [row for row, _ in rows.items()] for name, rows in program.run(given, "unit").items()}

    expected = probabilities(independent, [], model)
    facts = {name: [(p, row) for of, row, p in independent if of == name] for name in ("e", "u")}
    found = program.run(facts, "topkproofs", k=64, device="torch:cpu")
    given = {(name, row): p for name, rows in found.items() for row, p in rows.items()}
    assert given.keys() == expected.keys()
    for key, p in given.items():
        assert p == pytest.approx(expected[key], abs=1e-12), key


@pytest.mark.parametrize("k", [1, 3])
def test_many_literals(k):
    """More of them than a block of the store has, and than kernels have in registers."""
    rng = random.Random(k)
    steps = [(x, x + rng.choice([1, 2])) for x in (rng.randrange(1100) for _ in range(40)) for _ in range(2)]
    steps += [(x, x + d) for x in range(500, 506) for d in (1, 2)]
    facts = {"u": [(rng.choice([0.5, 0.25]), (x,)) for x in range(1102)], "f": steps}
    program = dv.Program("""type u(i32), f(i32, i32)
        rel p(x, y) = f(x, y), u(x), u(y) or (p(x, z) and f(z, y) and u(y))
        rel r(x, y) = p(x, y), not p(y - 1, y), not p(x, x + 1)""")
    on_host, on_device = (program.run(facts, "topkproofsdebug", k=k, device=of) for of in (None, "torch:cpu"))
    for name in ("p", "r"):
        assert dict(on_device[name].items()) == dict(on_host[name].items()), name
    assert any(literal < 0 for _, proofs in dict(on_device["r"].items()).values() for of in proofs for literal in of)


def test_which_sets_are_negated_first_decides_nothing():
    """Of equally probable proofs: here a rule of another stratum negates the second fact alone."""
    rules = "type u(i32), v(i32)\nrel c() = u(0), u(1)\nrel b() = not c(), not a(7)\nrel a(x) = v(x)"
    facts = {"u": [(0.5, (0,)), (0.5, (1,))], "v": [(1,)]}
    found = []
    for text in (rules, f"{rules}, not u(x)"):
        program = dv.Program(text)
        for device in (None, "torch:cpu"):
            found.append(program.run(facts, "topkproofsdebug", k=1, device=device)["b"][()])
    assert found == [(0.5, frozenset([frozenset([-1])]))] * 4


def test_proofs_that_come_back_are_derived_by_the_host():
    """Where two proofs of a row leave for one that both contain, see test_proof_rounds.py."""
    for k in (1, 2, 3):
        program = dv.Program(DETOUR)
        on_host, on_device = (program.run({}, "topkproofsdebug", k=k, device=of) for of in (None, "torch:cpu"))
        assert dict(on_device["way"].items()) == dict(on_host["way"].items())
        assert ("which finds proofs again that were dropped: step, way" in on_device.explain()) == (k > 1)


@pytest.mark.parametrize(("samples", "number"), [(0, 40), (0, 300), (3, 10), (5, 200)])
def test_sets_become_lanes_and_sets_again(samples, number):
    """Literals of samples, and of all samples before and behind them; choices of a sample and of all."""
    rng = np.random.default_rng(samples + number)
    owner = np.full(number, -1) if not samples else np.sort(rng.integers(-1, samples, number))
    groups = [np.array([0, 1, 2])] + ([] if samples else [np.array([7, 9])])
    groups += [np.flatnonzero(owner == s)[:2] for s in range(samples) if (owner == s).sum() > 1]
    facts = RandomFacts(rng.uniform(0.1, 0.9, number).tolist(), groups, samples=[owner] if samples else [])
    store = ProofStore(facts, 3)
    parts = [np.flatnonzero(owner >= 0), np.flatnonzero(owner < 0)]
    # Some literals of all samples are numbered last, others first.
    for variables in (parts[1][::2], parts[0], parts[1][1::2]):
        store.singles(variables)
    tags = [store.singles(np.arange(number)), np.array([ZERO, ONE])]
    for _ in range(3):
        left, right = rng.choice(np.concatenate(tags), (2, 60))
        for made in (store.times(left, right), store.plus(left, right)):
            tags.append(made[are_of_one_sample(store, made, owner)])
    tags = np.concatenate(tags)
    lanes = ProofLanes.of(store)
    assert lanes is not None
    counts = np.bincount(owner + 1)
    assert lanes.form == ProofForm(3, -(-(counts[0] + max(counts[1:], default=0)) // 64), 1)
    rows = lanes.lanes_of(tags)
    again = lanes.sets_of(rows)
    assert [store.proofs_of(tag) for tag in again.tolist()] == [store.proofs_of(tag) for tag in tags.tolist()]
    np.testing.assert_array_equal(lanes.lanes_of(again), rows)
    assert (rows[tags == ZERO, 1] > 1 << 59).all()
    for scope in range(lanes.num_scopes):
        # In the store's order, which decides between proofs.
        there = np.flatnonzero((lanes.scope == scope) | (lanes.scope == 0))
        assert (np.diff(lanes.number[there]) > 0).all()


def are_of_one_sample(store, tags, owner):
    proofs = (store.proofs_of(tag) for tag in tags.tolist())
    return [len({int(owner[abs(x) - 1]) for proof in of for x in proof} - {-1}) < 2 for of in proofs]


HOSTS = {
    "rel n(x, c) = c := count(y: p(x, y))\nrel m(x) = u(x), n(x, 1)": "computes `count` over uncertain rows: #count_1",
    "rel s(b) = b := exists(x: p(x, 0) and u(x))\nrel m() = s(true), not u(1)": "computes `exists` over .*: #exists_1",
    "rel 0.5::w(x) = u(x)\nrel q(x, y) = p(x, y), w(x) or (q(x, z) and p(z, y))": "makes a random fact .*: w",
    "rel r(x, y) = u(x), u(y), not p(x, y)\nrel m(x) = x := max(x: r(x, _))": "computes `max` over .*: #max_1",
    "rel m(x) = p(y, _), x in 0..y, not u(x)": "calls the predicate `range`: m",
    "rel n(x) = x := softmax(x: u(x))\nrel q(x, y) = p(x, y), n(x) or (q(x, z) and p(z, y))": "over .*: #softmax_1",
}


@examples(12, 120, st.sampled_from([*HOSTS]), st.integers(0, 1 << 16), st.sampled_from([1, 2, 3]))
def test_strata_of_the_host_and_of_a_device_find_the_proofs_of_the_host(rules, seed, k):
    """Aggregates, coins and predicates are the host's, before or behind what a device computes, and so are proofs that
    deny values of choices."""
    rng = random.Random(seed)
    facts, text = {}, f"type e(usize, usize), u(usize)\n{CLOSURE}\n{rules}"
    for name, width in (("e", 2), ("u", 1)):
        rows = [tuple(rng.randrange(3) for _ in range(width)) for _ in range(rng.randrange(5))]
        # The first two may exclude each other, where what denies values is behind what a device computes.
        if rng.random() < 0.3 and len(rows) > 1 and "rel q" not in rules:
            listed = "; ".join(f"0.5::({', '.join(map(str, row))})" for row in rows[:2])
            text += f"\nrel {name} = {{{listed}}}"
            rows = rows[2:]
        facts[name] = [(rng.choice([0.5, 0.25]), row) for row in rows]
    program = dv.Program(text)
    on_host = program.run(facts, "topkproofsdebug", k=k)
    on_device = program.run(facts, "topkproofsdebug", k=k, device="torch:cpu")
    for name in on_host:
        assert dict(on_device[name].items()) == dict(on_host[name].items()), name
    assert re.search(f"on the host, which .*{HOSTS[rules]}", on_device.explain())


def test_what_a_device_leaves_to_the_host():
    facts = {"e": [(0.5, (0, 1)), (0.25, (1, 2))], "u": [(0.5, (i,)) for i in range(4200)]}
    few, types = {"e": facts["e"], "u": facts["u"][:3]}, "type e(i32, i32), u(i32)\n"
    for rule, given, why in (
        ("rel 0.5::r(x) = u(x)", few, "`r` is computed by the host, which makes a random fact for each row of a rule"),
        ("rel r(x) = u(y), x in 0..y", few, "`r` is computed by the host, which calls the predicate `range`"),
        ("rel w = {0.5::0; 0.25::1}\nrel r(x) = u(x), not w(x)", few, "`r` .* denies values of the choices in w"),
        ("rel r(x) = u(x)", facts, "over 4,096 literals, of the 4,200 of this run"),
    ):
        program = dv.Program(types + rule)
        given = {name: given[name] for name in given if f"{name}(" in rule}
        with pytest.raises(UnsupportedError, match=why):
            program.run(given, "topkproofs", device="torch:cpu")
        first, *rest = program.explain("plan", given, "topkproofs", "torch:cpu").splitlines()
        assert re.match(f"on the host: .*{why}", first)
        assert rest
    closure = dv.Program(f"{types}{CLOSURE}")
    with pytest.raises(UnsupportedError, match="no columns of scalars"):
        closure.run({"e": facts["e"]}, "proofs", device="torch:cpu")
    with pytest.raises(dv.DerivableError, match="round_limit = 1"):
        closure.run({"e": facts["e"]}, "topkproofs", device="torch:cpu", round_limit=1)


def test_kernels_find_the_proofs_that_torch_finds():
    assert printed_by("datalog/device_proof_cases.py").split() == ["test_folds", "test_programs"]


def test_the_kernel_compiles_for_a_gpu():
    pytest.importorskip("triton")
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from derivable.datalog.kernels.triton_proofs import kernel_text
    from derivable.device.cuda.row_sets import TILE, kernel_of

    source = kernel_of(kernel_text(ProofForm(2, 1, 1), True, True, True), "fold", TILE).launch.function
    others = {"count": "i32", "total": "i32", "changed": "*u8"}
    signature = {name: others.get(name, "*i64") for name in source.arg_names}
    made = compiled(ASTSource(source, signature, {}), target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    assert "atom" not in made.asm["ptx"]
