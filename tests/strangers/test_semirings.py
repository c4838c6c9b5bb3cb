"""Semirings on nests, each a record in a file of its own, in circuits, programs, layers and on the command line."""

import dataclasses
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.algebra import semirings
from derivable.algebra.laws import sample_values, violations
from strangers.best import best
from strangers.dual import Dual, dual

HERE = Path(__file__).parent
PATHS = "type edge(i32, i32)\nrel path(x, y) = edge(x, y)\nrel path(x, z) = path(x, y), edge(y, z)\nquery path\n"
EDGES = {(0, 1): 0.75, (1, 2): 0.5, (0, 2): 0.375, (2, 3): 0.5, (1, 3): 0.125, (3, 4): 0.25, (0, 4): 0.03125}


def paths():
    """Every path of the graph, which has no cycles: (source, target) -> lists of numbers of edges."""
    found = {}

    def walk(start, at, used):
        for number, (source, target) in enumerate(EDGES):
            if source == at:
                found.setdefault((start, target), []).append([*used, number])
                walk(start, target, [*used, number])

    for start in {source for source, _ in EDGES}:
        walk(start, start, [])
    return found


def best_of(routes, chances):
    """The probability of the most probable route, and of equal ones the smallest set, as the sum of 2**number."""
    ranked = [(-math.prod(chances[n] for n in route), sum(2**n for n in route)) for route in routes]
    probability, members = min(ranked)
    return -probability, members


@pytest.mark.parametrize("record", [best, dual], ids=lambda record: record.name)
def test_laws(record):
    assert list(violations(record, sample_values(record))) == []
    assert semirings.get(record) is record


@pytest.mark.parametrize("name", ["best.py", "dual.py"])
def test_the_record_is_short(name):
    text = (HERE / name).read_text()
    assert len(text[text.index(" = Semiring(") :].splitlines()) <= 25
    assert len(text.splitlines()) <= 30


def test_best_derivation_of_a_program():
    db = dv.Program(PATHS).run(facts={"edge": EDGES}, provenance=best)
    assert db.provenance == "best"
    expected = {ends: best_of(routes, list(EDGES.values())) for ends, routes in paths().items()}
    assert dict(db["path"].items()) == expected
    row = list(zip(*(column.tolist() for column in db["path"].columns))).index((0, 4))
    assert db["path"].tags["f1"][row] == expected[0, 4][1]
    assert db["path"].to_pandas()["tag_f0"].tolist() == [tag[0] for tag in db["path"].tag_list()]


def test_recursion_through_cycles():
    """The best way round a cycle is the one that does not go round it."""
    edges = {(0, 1): 0.5, (1, 0): 0.5, (1, 2): 0.25, (2, 0): 1.0}
    db = dv.Program(PATHS).run(facts={"edge": edges}, provenance=best)
    assert db["path"][0, 2] == (0.125, 1 + 4)
    assert db["path"][1, 1] == (0.25, 1 + 2)


def test_dual_numbers_of_a_program():
    """The slopes are the derivatives of the sum over paths, by differences."""
    db = dv.Program(PATHS).run(facts={"edge": EDGES}, provenance=dual)
    for ends, routes in paths().items():

        def total(p, routes=routes):
            chances = [p, *list(EDGES.values())[1:]]
            return sum(math.prod(chances[n] for n in route) for route in routes)

        slope = (total(0.75 + 1e-4) - total(0.75 - 1e-4)) / 2e-4
        assert db["path"][ends] == pytest.approx((total(0.75), slope))
    assert db["path"].tags.dtype.names == ("value", "slope")


def test_negation_and_aggregates():
    text = """rel e = {0.5::(0), 0.25::(1), 0.75::(2)}
    rel f(x) = e(x), not g(x)
    rel g = {0.5::(1)}
    rel n(c) = c := count(x: e(x))
    query f
    query n"""
    db = dv.Program(text).run(provenance=dual)
    chances = [0.5, 0.25, 0.75]

    def count_is(k, p):
        worlds = [w for w in itertools.product([0, 1], repeat=3) if sum(w) == k]
        return sum(math.prod(c if bit else 1 - c for bit, c in zip(w, [p, *chances[1:]])) for w in worlds)

    for k in range(4):
        assert db["n"][k] == pytest.approx((count_is(k, 0.5), (count_is(k, 0.75) - count_is(k, 0.25)) / 0.5))
    assert db["f"][1] == (0.125, 0.0)


def formula():
    a, b, c, d = dv.circuit.variables(4)
    return dv.circuit.compile((a & b & ~d) | (~a & c) | (b & ~c))


def models():
    for world in itertools.product([False, True], repeat=4):
        a, b, c, d = world
        if (a and b and not d) or (not a and c) or (b and not c):
            yield world


def test_circuit_in_dual_numbers():
    """Weights of a variable and of its negation add up to 1, so what a branch leaves out counts as it should."""
    circuit = formula()
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.9, (3, 4))
    value, slope = circuit.evaluate(dual.fact(p, np.arange(4)), semiring=dual)
    assert isinstance(circuit.evaluate(dual.fact(p, np.arange(4)), semiring=dual), Dual)

    def total(p):
        return sum(np.prod(np.where(world, p, 1 - p), axis=-1) for world in models())

    step = np.array([1e-6, 0, 0, 0])
    np.testing.assert_allclose(value[:, 0], total(p))
    np.testing.assert_allclose(slope[:, 0], (total(p + step) - total(p - step)) / 2e-6, rtol=1e-6)


def test_circuit_gradients_against_differences():
    circuit = formula()
    rng = np.random.default_rng(1)
    value, slope = rng.uniform(0.1, 0.9, (2, 2, 4))
    adjoints = Dual(*rng.standard_normal((2, 2, 1)))
    _, gradient, _ = circuit.value_and_gradient(Dual(value, slope), semiring=dual, adjoints=adjoints)

    def total(value, slope):
        found = circuit.evaluate(Dual(value, slope), semiring=dual)
        return (found.value * adjoints.value + found.slope * adjoints.slope).sum()

    for row, column in np.ndindex(2, 4):
        step = np.zeros((2, 4))
        step[row, column] = 1e-6
        by_value = (total(value + step, slope) - total(value - step, slope)) / 2e-6
        by_slope = (total(value, slope + step) - total(value, slope - step)) / 2e-6
        assert gradient.value[row, column] == pytest.approx(by_value, rel=1e-5)
        assert gradient.slope[row, column] == pytest.approx(by_slope, rel=1e-5)


def test_most_probable_model_of_a_circuit():
    """With weights that prefer no order of variables, the best model by brute force, and its gradient."""
    circuit = formula()
    p = np.array([0.7, 0.4, 0.8, 0.3])
    weights = best.fact(p, np.arange(4))
    negative = (1 - p, np.zeros(4, np.int64))
    (probability, members), gradient, _ = circuit.value_and_gradient(weights, negative, semiring=best)
    # Variables that a branch of the circuit leaves out count as 1, so compare on the literals that were used.
    used = [bool(int(members[0]) >> k & 1) for k in range(4)]
    assert gradient[0][np.array(used)] == pytest.approx(probability[0] / p[np.array(used)])
    assert all(any(world[k] for world in models()) for k in range(4) if used[k])


@pytest.mark.parametrize("record", [best, dual], ids=lambda record: record.name)
def test_a_layer_and_its_gradients(record):
    layer = dv.nn.Logic(PATHS, {"edge": dv.independent(list(EDGES))}, {"path": [(0, 4), (0, 3), (1, 2)]}, record)
    rng = np.random.default_rng(2)
    p = torch.tensor(rng.uniform(0.2, 0.9, (3, len(EDGES))), requires_grad=True)
    shown = layer(p)
    for row, chances in enumerate(p.tolist()):
        db = dv.Program(PATHS).run(facts={"edge": dict(zip(EDGES, chances))}, provenance=record)
        for column, ends in enumerate([(0, 4), (0, 3), (1, 2)]):
            assert tuple(part[row, column].item() for part in shown) == pytest.approx(db["path"][ends])
    assert torch.autograd.gradcheck(lambda p: tuple(x for x in layer(p) if x.is_floating_point()), (p,))
    single = layer(p.detach().float().requires_grad_())
    assert single[0].dtype == torch.float32


def test_a_layer_with_negation():
    text = "type e(i32), g(i32)\nrel f(x) = e(x), not g(x)"
    layer = dv.nn.Logic(text, {"e": dv.independent(range(2)), "g": dv.categorical(range(2))}, {"f": range(2)}, dual)
    e, g = torch.tensor([[0.5, 0.25]]), torch.tensor([[0.75, 0.25]], requires_grad=True)
    shown = layer(e=e, g=g)
    assert isinstance(shown, Dual)
    assert shown.value.tolist() == [[0.125, 0.1875]]
    assert shown.slope.tolist() == [[0.25, 0.0]]
    shown.slope.sum().backward()
    assert g.grad.tolist() == [[-1.0, 0.0]]


def test_on_the_command_line(tmp_path):
    program = tmp_path / "paths.scl"
    facts = ", ".join(f"{p}::{edge}" for edge, p in EDGES.items())
    program.write_text(f"{PATHS}rel edge = {{{facts}}}\n")
    command = [sys.executable, "-m", "derivable.cli", "run", str(program), "--provenance", f"{HERE / 'best.py'}:best"]
    shown = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    document = json.loads(shown)["path"]
    found = {tuple(row): tuple(tag) for row, tag in zip(document["tuples"], document["tags"])}
    assert found == {ends: best_of(routes, list(EDGES.values())) for ends, routes in paths().items()}
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "(0.75, 1)::path(0, 1)" in lines
    command[-1] = f"{HERE / 'best.py'}:bets"
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "did you mean 'best'?" in refused.stderr


def test_a_record_without_fact_says_so():
    pair = dataclasses.replace(dual, name="pair", fact=None)
    with pytest.raises(dv.DerivableError, match="does not say what the value of a random fact is"):
        dv.Program(PATHS).run(facts={"edge": EDGES}, provenance=pair)
    with pytest.raises(dv.DerivableError, match="does not say what the value of a random fact is"):
        dv.nn.Logic(PATHS, {"edge": dv.independent(list(EDGES))}, {"path": [(0, 4)]}, pair)


def test_where_scalars_are_needed():
    with pytest.raises(dv.DerivableError, match="shape"):
        formula().evaluate(Dual(np.ones(3), np.ones(3)), semiring=dual)
    with pytest.raises(dv.DerivableError, match="parts"):
        formula().evaluate((np.ones(4), np.ones(4), np.ones(4)), semiring=dual)


def test_folds_take_a_semiring_on_nests():
    """Scans, segments and buckets of its plus, in every library, against Python's own loop."""
    jnp = pytest.importorskip("jax.numpy")
    rng = np.random.default_rng(2)
    chances, members = rng.choice([0.25, 0.5, 0.75], 9), rng.integers(0, 8, 9)

    def plus(rows):
        return min([(-p, m) for p, m in rows], default=(0.0, 0))

    prefixes = [plus(list(zip(chances, members))[: n + 1]) for n in range(9)]
    for made in (np.asarray, torch.as_tensor, jnp.asarray):
        # JAX's integers have 32 bits here.
        values = made(chances.astype(np.float32)), made(members.astype(np.int32))
        found = dv.parallel.scan(best, values)
        assert [(-float(p), int(m)) for p, m in zip(*found)] == prefixes
        whole = dv.parallel.reduce(best, values)
        assert (-float(whole[0]), int(whole[1])) == prefixes[-1]
        parts = dv.parallel.segment_reduce(best, values, made(np.array([0, 4, 4, 9])))
        cuts = [plus(zip(chances[a:b], members[a:b])) for a, b in ((0, 4), (4, 4), (4, 9))]
        assert [(-float(p), int(m)) for p, m in zip(*parts)] == cuts
        where = np.array([0, 1, 1, 0, 7, 1, 0, 0, 1])
        start = made(np.zeros(2, np.float32)), made(np.zeros(2, np.int32))
        buckets = dv.parallel.reduce_by_index(start, best, made(where), values)
        expected = [plus([(0.0, 0), *zip(chances[where == k], members[where == k])]) for k in (0, 1)]
        assert [(-float(p), int(m)) for p, m in zip(*buckets)] == expected


def test_folds_of_a_semiring_keep_the_class_and_have_gradients():
    value, slope = (torch.rand(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    found = dv.parallel.segment_reduce(dual, Dual(value, slope), torch.tensor([0, 2, 5]))
    assert isinstance(found, Dual)
    (found.value * torch.tensor([2.0, 3.0]) + found.slope.square()).sum().backward()
    sums = [slope[:2].sum().item(), slope[2:].sum().item()]
    np.testing.assert_allclose(value.grad, [2, 2, 3, 3, 3])
    np.testing.assert_allclose(slope.grad, 2 * np.repeat(sums, [2, 3]))
    with pytest.raises(dv.DerivableError, match="2 parts"):
        dv.parallel.scan(dual, np.ones(3))


@pytest.mark.parametrize("record", [best, dual], ids=lambda record: record.name)
def test_modules_of_circuits_take_nests_and_probabilities(record):
    circuit = formula()
    p = np.random.default_rng(3).uniform(0.1, 0.9, (3, 4))
    module = circuit.to_torch(record)
    expected, gradient, _ = circuit.value_and_gradient(p, semiring=record)
    nest = record.fact(p, np.arange(4))
    negative = record.complement(nest) if record is dual else (1 - p, np.zeros((3, 4), np.int64))
    weights = torch.tensor(p, requires_grad=True)
    made = [type(part)(*map(torch.as_tensor, part)) if record is dual else tuple(map(torch.as_tensor, part))
            for part in (nest, negative)]  # fmt: skip
    for found in (module(weights), module(*made)):
        assert type(found) is type(expected)
        for part, other in zip(found, expected):
            np.testing.assert_allclose(part.detach().numpy(), other)
    sum(part.sum() for part in module(weights) if part.dtype.is_floating_point).backward()
    np.testing.assert_allclose(weights.grad, gradient)
    with pytest.raises(dv.DerivableError, match="a leaf of weights has shape"):
        module(tuple(part[..., :3] for part in made[0]))
    with pytest.raises(dv.DerivableError, match="parts"):
        module((weights,))


def test_a_module_in_dual_numbers_has_second_derivatives_and_compiles():
    circuit = formula()
    module = circuit.to_torch(dual)
    p = torch.tensor(np.random.default_rng(4).uniform(0.1, 0.9, (2, 4)), requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda p: module(p)[1], p)
    # The slope is the derivative of the value by variable 0.
    (slope,) = torch.autograd.grad(module(p).value.sum(), p)
    np.testing.assert_allclose(module(p).slope[:, 0].detach(), slope[:, 0])


def test_jax_functions_of_circuits_take_nests():
    jax = pytest.importorskip("jax")
    circuit = formula()
    p = np.random.default_rng(5).uniform(0.1, 0.9, (3, 4)).astype(np.float32)
    function = circuit.to_jax(dual)
    expected, gradient, _ = circuit.value_and_gradient(p, semiring=dual)
    for found in (
        function(p),
        jax.jit(function)(p),
        function(Dual(*map(jax.numpy.asarray, dual.fact(p, np.arange(4))))),
    ):
        assert isinstance(found, Dual)
        for part, other in zip(found, expected):
            np.testing.assert_allclose(part, other, rtol=1e-5)
    slopes = jax.jit(jax.grad(lambda p: sum(part.sum() for part in function(p))))(p)
    np.testing.assert_allclose(slopes, gradient, rtol=1e-5)
    assert jax.vmap(function)(p).value.shape == (3, 1)
    with jax.enable_x64(False), pytest.raises(dv.DerivableError, match="JAX cuts to 32"):
        circuit.to_jax(best)(p)
