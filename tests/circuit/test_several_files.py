"""Several files and circuits in one, literals that become constants, and vtrees that are given."""

import itertools
import warnings
from functools import partial

import numpy as np
import pytest

from circuit.random_circuits import assert_same_structure
from derivable.circuit import CircuitBuilder, compile, from_sdd, load, variables
from derivable.circuit.files.nnf_file import write_nnf
from derivable.circuit.files.sdd_file import write_sdd
from derivable.circuit.files.vtree_file import load_vtree
from derivable.cli.main import main
from derivable.core.diagnostics import DerivableWarning, DomainError, ParseError, UnsupportedError

FIRST, SECOND = [[1, 2], [-2, 3]], [[2, 3], [-1, -3]]
WORLDS = np.array(list(itertools.product((False, True), repeat=4)))
VTREE = "c mine\nvtree 7\nL 0 3\nL 2 1\nI 1 0 2\nL 4 4\nL 6 2\nI 5 4 6\nI 3 1 5\n"


def truth(clauses):
    return np.all([np.any([WORLDS[:, abs(x) - 1] == (x > 0) for x in clause], 0) for clause in clauses], 0)


@pytest.fixture
def paths(tmp_path):
    write_nnf(compile(FIRST, num_variables=3), tmp_path / "first.nnf")
    write_sdd(compile(SECOND, num_variables=4), tmp_path / "second.sdd")
    (tmp_path / "third.cnf").write_text("p cnf 4 1\n-4 1 0\n")
    compile([[1], [-1]], num_variables=2).save(tmp_path / "fourth.dvc")
    return [str(tmp_path / name) for name in ("first.nnf", "second.sdd", "third.cnf", "fourth.dvc")]


def test_several_files_make_one_circuit(paths):
    together = load([*paths, paths[0]])
    together.check()
    expected = np.array([truth(FIRST), truth(SECOND), truth([[-4, 1]]), WORLDS[:, 0] & False, truth(FIRST)])
    np.testing.assert_array_equal(together.truth(WORLDS), expected)
    assert together.num_variables == 4
    assert together.model_count() == expected.sum(axis=1).tolist()
    alone = [load(path) for path in paths]
    assert together.num_nodes < sum(circuit.num_nodes for circuit in alone)  # what they have in common is shared
    assert load([]).num_roots == 0
    assert_same_structure(load((paths[0],)), alone[0])
    assert load(paths[1:2]).vtree is not None
    assert load(paths[:2], num_variables=6).model_count() == [4 * count for count in together.model_count()[:2]]
    with pytest.raises(ParseError, match="cannot read"):
        load([paths[0], "absent.nnf"])


def test_builders_take_circuits():
    first, second = compile(FIRST, num_variables=4), compile(SECOND, num_variables=4)
    b = CircuitBuilder()
    (one,), (two,) = b.add(first), b.add(second)
    assert b.add(first).tolist() == [one]
    both = b.build([b.conjunction([one, two]), two, one], 4)
    np.testing.assert_array_equal(both.truth(WORLDS), [truth(FIRST + SECOND), truth(SECOND), truth(FIRST)])
    assert b.add(b.build([], 4)).tolist() == []


def test_weights_of_several_files_are_the_same_or_refused(tmp_path):
    for name, weight in (("a", 0.25), ("b", 0.25), ("c", 0.75)):
        (tmp_path / f"{name}.cnf").write_text(f"p cnf 2 1\n{1 if name == 'a' else 2} 0\nc p weight 1 {weight} 0\n")
    together = load([tmp_path / "a.cnf", tmp_path / "b.cnf"])
    assert together.weighted_count().tolist() == [0.25 * 2, 1.0]
    with pytest.raises(ParseError, match=r"its weights are not those of .*a.cnf"):
        load([tmp_path / "a.cnf", tmp_path / "c.cnf"])


def test_a_number_of_variables_is_taken_by_every_format(paths):
    for path, mentioned in zip(paths, (3, 4, 4, 2)):
        assert load(path, num_variables=6).model_count() == load(path).model_count() << (6 - mentioned)


def test_literals_that_become_constants(tmp_path):
    """(x1 and x2) or (not x1 and x3), with the weights .3, .5 and .7: klaycircuits gives .64, .99, .15, .5, .85."""
    (tmp_path / "c.nnf").write_text("o 1 0\nt 2 0\n1 2 1 2 0\n1 2 -1 3 0\n")
    weights = [0.3, 0.5, 0.7]
    cases = [
        ({}, 0.3 * 0.5 + 0.7 * 0.7),
        ({"true_lits": [1]}, 0.5 + 0.7 * 0.7),
        ({"false_lits": [-1]}, 0.3 * 0.5),
        ({"true_lits": [1], "false_lits": [-1]}, 0.5),
        ({"true_lits": [-1]}, 0.3 * 0.5 + 0.7),
    ]
    for options, expected in cases:
        circuit = load(tmp_path / "c.nnf", **options)
        assert circuit.evaluate(weights) == pytest.approx([expected])
        assert circuit.num_variables == 3
        b = CircuitBuilder()
        added = b.build(b.add(load(tmp_path / "c.nnf"), **options), 3)
        assert added.evaluate(weights) == pytest.approx([expected])
    (tmp_path / "d.cnf").write_text("p cnf 3 2\n-1 2 0\n1 3 0\n")
    assert load(tmp_path / "d.cnf", true_lits=[1], false_lits=[-1]).origin == "sdd"
    assert load(tmp_path / "d.cnf", true_lits=[1]).origin == ""


@pytest.mark.filterwarnings("ignore:.*not smooth")
def test_the_semiring_that_klay_calls_mpe():
    circuit = compile(FIRST)
    expected = circuit.evaluate([0.3, 0.5, 0.7], semiring="max_product")
    assert circuit.evaluate([0.3, 0.5, 0.7], semiring="mpe") == expected
    assert circuit.to_torch("mpe") is not None


# Vtrees


@pytest.fixture
def vtree_path(tmp_path):
    path = tmp_path / "v.vtree"
    path.write_text(VTREE)
    return path


@pytest.mark.parametrize("clauses", [FIRST, SECOND, [*FIRST, [3, -4], [1, 4, -3]], [[1, -1]], [[4], [-4]]])
def test_a_vtree_that_is_given_is_kept(clauses, vtree_path, tmp_path):
    from pysdd.sdd import SddManager
    from pysdd.sdd import Vtree as PysddVtree

    tree = load_vtree(vtree_path)
    live = PysddVtree.from_file(bytes(vtree_path))
    a, b, _, d = variables("a b c d")
    for given in (vtree_path, str(vtree_path), tree, live):
        circuit = compile(clauses, num_variables=4, vtree=given)
        circuit.check()
        np.testing.assert_array_equal(circuit.truth(WORLDS)[0], truth(clauses))
        assert circuit.vtree.variable_order.tolist() == [3, 1, 4, 2]
        assert circuit.vtree.text().splitlines()[1:] == VTREE.splitlines()[2:]
    # PySDD's own SDD under that tree has the same nodes; the check of `load` needs every node at its place.
    manager = SddManager.from_vtree(live)
    node = manager.true()
    for clause in clauses:
        part = manager.false()
        for number in clause:
            part = part | manager.literal(number)
        node = node & part
    assert_same_structure(from_sdd(node), circuit)
    write_sdd(circuit, tmp_path / "c.sdd")
    assert load(tmp_path / "c.sdd").vtree.text() == circuit.vtree.text()
    assert compile(a & (b | d), vtree=vtree_path).model_count() == 6


def test_a_larger_formula_under_its_vtree(tmp_path):
    """Compiled by the child process, over variables with gaps in a tree with ids in no order."""
    rng = np.random.default_rng(3)
    clauses = [[int(v) * int(rng.choice([-1, 1])) for v in 2 * rng.choice(20, 3, replace=False) + 2] for _ in range(30)]
    order = (2 * rng.permutation(20) + 2).tolist()
    rows = [f"L {38 - i} {v}" for i, v in enumerate(order)]
    rows += [f"I {18 - i} {38 - i - 1} {38 if i == 0 else 19 - i}" for i in range(19)]
    (tmp_path / "v.vtree").write_text("\n".join(["vtree 39", *rows, ""]))
    circuit = compile(clauses, vtree=tmp_path / "v.vtree")
    assert circuit.vtree.variable_order.tolist() == [*order[1:][::-1], order[0]]
    assert circuit.model_count() == compile(clauses).model_count()


def test_the_command_takes_a_vtree(vtree_path, tmp_path):
    (tmp_path / "c.cnf").write_text("p cnf 4 3\n1 2 0\n-2 3 0\n3 -4 0\n")
    assert main(["compile", str(tmp_path / "c.cnf"), "-o", str(tmp_path / "c.sdd"), "--vtree", str(vtree_path)]) == 0
    assert load(tmp_path / "c.cnf", vtree=vtree_path).vtree.variable_order.tolist() == [3, 1, 4, 2]
    written = load(tmp_path / "c.sdd")
    assert written.vtree.variable_order.tolist() == [3, 1, 4, 2]
    assert written.model_count() == truth([[1, 2], [-2, 3], [3, -4]]).sum()


def test_vtrees_that_do_not_fit(vtree_path):
    with pytest.raises(DomainError, match="variable 5 is not in the vtree"):
        compile([[1, 5]], vtree=vtree_path)
    with pytest.raises(DomainError, match="'d4' has no vtree"):
        compile([[1, 2]], "d4", vtree=vtree_path)
    with pytest.raises(ParseError, match="cannot read"):
        compile([[1, 2]], vtree="absent.vtree")
    with pytest.raises(DomainError, match=r"no vtree 7\n.*paths"):
        compile([[1, 2]], vtree=7)


# Tensors

NAMES = ["evaluate", "value_and_gradient", "weighted_count", "probability", "marginals", "most_probable", "entropy"]
# A query of a circuit, and weights.
QUERIES = {name: lambda circuit, *w, name=name: getattr(circuit, name)(*w) for name in NAMES} | {
    "k_most_probable": lambda circuit, *w: circuit.k_most_probable(2, *w),
    "sample": lambda circuit, *w: circuit.sample(5, *w, seed=0),
    "kl_divergence": lambda circuit, w, *negative: circuit.kl_divergence([0.5] * 3, w, None, *negative),
}


@pytest.mark.parametrize("name", QUERIES)
def test_queries_in_numpy_refuse_gradients(name):
    import torch

    circuit = compile(FIRST)
    query, leaf = QUERIES[name], torch.full((3,), 0.5, requires_grad=True)
    for weights in (leaf, leaf * 2, {1: leaf[0], 2: leaf[1], 3: 0.5}):
        with pytest.raises(UnsupportedError, match=r"requires a gradient(.|\n)*to_torch"):
            query(circuit, weights)
    if name != "probability":
        with pytest.raises(UnsupportedError, match=r"negative_weights requires a gradient"):
            query(circuit, leaf.detach(), leaf)
    # A leaf is no other weight once it is detached.
    assert str(query(circuit, leaf.detach())) == str(query(circuit, leaf.detach().numpy()))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", QUERIES)
def test_queries_in_numpy_refuse_traces(name):
    import jax
    import torch

    query, plain = partial(QUERIES[name], compile(FIRST)), torch.full((2, 3), 0.5)
    traces = [
        lambda: jax.jit(query)(jax.numpy.full(3, 0.5)),
        lambda: jax.grad(query)(jax.numpy.full(3, 0.5)),
        lambda: torch.vmap(query)(plain),
        lambda: torch.func.jvp(query, (plain,), (plain,)),
        lambda: torch.jit.trace(lambda x: torch.as_tensor(query(x)), (plain,)),
        lambda: torch.fx.symbolic_trace(lambda x: query(x)),
    ]
    for traced in traces:
        with pytest.raises(UnsupportedError, match=r"is traced(.|\n)*to_torch(.|\n)*to_jax"):
            traced()


# Files of other kinds, and evaluations that are not what they seem.


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("v.vtree", "vtree 1\nL 0 1\n", "a vtree"),
        ("m.mtx", "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n", "a matrix of the Matrix Market"),
        ("n.xml", '<?xml version="1.0"?>\n<BIF VERSION="0.3">\n</BIF>\n', "a Bayesian network in XML"),
        ("8.dnf", "p dnf 3 2\n1 2 0\n-3 0\n", "a formula in disjunctive normal form"),
        ("w.wcnf", "p wcnf 2 1\n1 2 0\n", "a formula of weighted MaxSAT"),
    ],
)
def test_files_of_other_kinds_are_named(name, text, title, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ParseError, match=f"this is {title}, and no circuit or CNF"):
        load(tmp_path / name)


def test_the_best_model_needs_a_smooth_circuit():
    circuit, weights = compile([[1, 2], [-1, 3]]), np.array([0.9, 0.2, 0.7])
    worlds = np.array(list(itertools.product((False, True), repeat=3)))
    holds = (worlds[:, 0] | worlds[:, 1]) & (~worlds[:, 0] | worlds[:, 2])
    best = np.where(worlds, weights, 1 - weights).prod(axis=1)[holds].max()
    for semiring in ("max_product", "mpe", "maxmultprob"):
        with pytest.warns(DerivableWarning, match=r"is not smooth(.|\n)*smooth\(\).evaluate"):
            assert circuit.evaluate(weights, semiring=semiring) > best
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert circuit.smooth().evaluate(weights, semiring=semiring) == pytest.approx(best)
            assert circuit.most_probable(weights).weight == pytest.approx(best)
            circuit.evaluate(weights)
    free = compile([[1]], num_variables=2)
    with pytest.warns(DerivableWarning, match="not smooth"):
        assert free.evaluate([0.5, 0.75], semiring="mpe") == 0.5
    assert free.smooth().evaluate([0.5, 0.75], semiring="mpe") == 0.375


def test_what_is_no_circuit_is_not_added():
    with pytest.raises(DomainError, match=r"circuit is a str, expected a circuit(?s:.*)load"):
        CircuitBuilder().add("one.nnf")
