"""Relations of integers as sparse tensors, and sparse tensors as facts."""

import numpy as np
import pytest
import scipy.sparse as sp

import derivable as dv
from derivable.core.diagnostics import DomainError, TypeMismatchError
from derivable.datalog.facts.inputs import taken
from derivable.tensor.values.values import coordinates

RNG = np.random.default_rng(0)
A = sp.csr_array(RNG.integers(1, 9, (5, 5)) * (RNG.random((5, 5)) < 0.4) / 2)
PATHS = "rel path(x, y) = edge(x, y)\nrel path(x, y) = path(x, z), edge(z, y)\nquery path"
TWO = "rel two(x, y) = edge(x, z), edge(z, y)\nquery two"
FORMS = ("coordinates", "csr", "csc", "coo", "torch_coo", "torch_csr", "sparse")


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("form", FORMS)
def test_tensors_are_facts(form):
    found = dv.Program(TWO).run({"edge": coordinates(A).to(form)}, provenance="real")["two"]
    np.testing.assert_allclose(coordinates(found, shape=A.shape).to_numpy(), (A @ A).toarray())
    distances = dv.Program(PATHS).run({"edge": coordinates(A).to(form)}, provenance="min_plus")["path"]
    shortest = np.where(A.toarray() > 0, A.toarray(), np.inf)
    for _ in range(5):
        shortest = np.minimum(shortest, (shortest[:, :, None] + shortest[None]).min(1))
    np.testing.assert_allclose(coordinates(distances, shape=A.shape, semiring="min_plus").to_numpy(np.inf), shortest)


def test_values_are_elements_of_the_semiring():
    edge = coordinates({0: {1: 0.0}, 1: {2: 3.0}})
    # The zero of `real` is the one of `min_plus`.
    assert dict(dv.Program(TWO).run({"edge": edge}, provenance="min_plus")["two"]) == {(0, 2): 3.0}
    assert dict(dv.Program(TWO).run({"edge": edge}, provenance="unit")["two"]) == {}
    assert dict(dv.Program(TWO).run({"edge": edge}, provenance="counting")["two"]) == {}
    twice = coordinates({0: {1: 2.0}, 1: {2: 3.0}})
    assert dict(dv.Program(TWO).run({"edge": twice}, provenance="counting")["two"]) == {(0, 2): 6}
    assert dict(dv.Program(TWO).run({"edge": twice}, provenance="unit")["two"]) == {(0, 2): True}
    both = dv.Program(TWO + "\nrel edge = {0.5::(2, 4)}").run({"edge": twice}, provenance="real")["two"]
    assert dict(both) == {(0, 2): 6.0, (1, 4): 1.5}
    likely = coordinates({0: {1: 0.5}, 1: {2: 0.4}})
    found = dv.Program(TWO).run({"edge": likely})
    assert found.provenance == "exact"
    assert dict(found["two"]) == {(0, 2): pytest.approx(0.2)}
    with pytest.raises(
        DomainError, match="the tag 2 of row 0 of the facts for `edge` is not a probability, which 'exact' needs"
    ):
        dv.Program(TWO).run({"edge": twice})
    with pytest.raises(DomainError, match=r"the tag 2 of row 0 .* which 'minmaxprob' needs"):
        dv.Program(TWO).run({"edge": twice}, provenance="minmaxprob")
    kept = dv.Program(TWO).run({"edge": twice}, provenance="real", keep=True)
    kept.add({"edge": coordinates({2: {0: 4.0}})})
    assert dict(kept["two"]) == {(0, 2): 6.0, (1, 0): 12.0, (2, 1): 8.0}


def test_relations_are_tensors():
    edges = dv.Program("rel arc(x, y) = edge(x, y)\nquery arc").run({"edge": A}, provenance="real")["arc"]
    x = RNG.normal(size=5)
    np.testing.assert_allclose(dv.tensor.einsum("ij,j->i", edges, x), A @ x)
    program = dv.tensor.parse(
        "sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }", {"A": dv.tensor.matrix, "X": dv.tensor.vector}
    )
    np.testing.assert_allclose(program(A=edges, X=x)[: len(x)], A @ x)
    np.testing.assert_allclose(dv.tensor.compile(program, {"A": "csr"})(A=edges, X=x)[: len(x)], A @ x)
    again = dv.Program(TWO).run({"edge": edges}, provenance="real")["two"]
    np.testing.assert_allclose(coordinates(again, shape=(5, 5)).to_numpy(), (A @ A).toarray())
    # Without tags entries are the one of whatever semiring.
    certain = dv.Program("rel arc(x, y) = edge(x, y)\nquery arc").run({"edge": [(0, 1), (1, 2)]})["arc"]
    assert dv.tensor.einsum("ij->", certain) == 2.0
    assert dict(dv.Program(TWO).run({"edge": certain})["two"]) == {(0, 2): True}
    assert dv.tensor.einsum("ij,jk->", certain, certain, semiring="min_plus") == 0.0
    texts = dv.Program('rel arc = {("a", 1)}\nquery arc').run()["arc"]
    with pytest.raises(TypeMismatchError, match="column 0 of the relation is String"):
        dv.tensor.einsum("ij->", texts)


def test_nothing_is_copied_where_the_layout_allows():
    edge = coordinates(A)
    columns = taken({"edge": edge})["edge"]
    assert np.shares_memory(columns.probabilities, edge.values)
    assert all(np.shares_memory(column, edge.indices) for column in columns.arrays)
    weights = {(i,): x for i, x in enumerate(RNG.random(5).tolist())}
    view = dv.Program("type weight(x: i64)\nrel heavy(x) = weight(x)\nquery heavy").run(
        {"weight": weights}, provenance="real"
    )["heavy"]
    found = coordinates(view)
    assert np.shares_memory(found.values, view.tags)
    assert np.shares_memory(found.indices, view.columns[0])


def test_gradients_cross():
    """A sparse tensor's entries are facts of a layer, whose results are the entries of a sparse tensor."""
    torch = pytest.importorskip("torch")
    chances = torch.tensor([0.5, 0.4, 0.3], dtype=torch.float64, requires_grad=True)
    start = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    places = np.array([[0, 0, 1], [1, 2, 2]])
    layer = dv.nn.Logic(
        PATHS,
        inputs={"edge": dv.independent(torch.sparse_coo_tensor(places, chances, (3, 3)))},
        outputs={"path": list(zip(*places.tolist()))},
    )

    def total(chances):
        edge = torch.sparse_coo_tensor(places, chances, (3, 3)).coalesce()
        reached = layer(edge=edge.values()[None])[0]
        path = torch.sparse_coo_tensor(places, reached, (3, 3))
        return dv.tensor.einsum("ij,j->", path, start)

    def meant(chances):
        a, b, c = chances
        return 2 * a + 3 * (1 - (1 - b) * (1 - a * c)) + 3 * c

    torch.testing.assert_close(total(chances), meant(chances))
    torch.testing.assert_close(
        torch.autograd.grad(total(chances), chances), torch.autograd.grad(meant(chances), chances)
    )
