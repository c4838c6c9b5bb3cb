"""The layered form compares with klaycircuits' and means the same as the flat one; texts and DOT."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuit.random_circuits import AND, OR, random_arrays, truth_tables
from data import data_path
from derivable.circuit import load
from derivable.circuit.graph.builder import CircuitBuilder, circuit_from_arrays
from derivable.circuit.graph.circuit import Circuit
from derivable.core.diagnostics import UnsupportedError


@pytest.mark.parametrize(("name", "nodes", "edges"), [("sudoku_4", 2142, 2811), ("4-grid", 4864, 8777)])
def test_sizes_are_those_of_klaycircuits(name, nodes, edges, tmp_path):
    path = data_path(f"circuits/{name}.sdd.gz")
    layers = load(path).layers(unary_chains=True)
    layers.check()
    assert (layers.num_nodes, layers.num_edges) == (nodes, edges)

    klay = pytest.importorskip("klay")
    plain = tmp_path / f"{name}.sdd"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    peer = klay.Circuit()
    peer.add_sdd_from_file(str(plain))
    peer.remove_unused_nodes()
    indices, offsets = peer._get_indices()[:2]  # this also adds the layer of roots
    assert layers.num_nodes == peer.nb_nodes()
    assert [layer.num_edges for layer in layers.layers[1:]] == [len(array) for array in indices]
    assert [layer.num_nodes for layer in layers.layers[1:]] == [len(array) - 1 for array in offsets]
    assert layers.num_layers == len(indices) + 1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(0, 3), st.sampled_from([None, 3]))
def test_both_forms_mean_what_the_truth_table_says(seed, num_inner, num_roots, local):
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, 4, num_inner, local=local)
    roots = rng.integers(0, len(arrays[0]), num_roots)
    circuit = circuit_from_arrays(*arrays, roots, 4)
    expected = truth_tables(*arrays, 4)[roots]
    for layers in (circuit.layers(), circuit.layers(unary_chains=True)):
        layers.check()
        assert len(layers.layers) == layers.num_layers
        for world in rng.integers(0, 16, 3):
            weights = [bool(world >> v & 1) for v in range(4)]
            assert layers.interpret(weights, semiring="boolean") == expected[:, world].tolist()
    weights, negative = rng.random((2, 4))
    flat = circuit.layers().interpret(weights, negative)
    np.testing.assert_allclose(circuit.layers(unary_chains=True).interpret(weights, negative), flat)


def example() -> Circuit:
    b = CircuitBuilder()
    x, not_x, y, z = (b.literal(number) for number in (1, -1, 2, 3))
    first = b.conjunction([x, y, b.disjunction([z, b.conjunction([x, not_x, y])])])
    return b.build([b.disjunction([first, b.conjunction([not_x, z])]), y, b.true()])


def test_printed_form():
    assert example().layers().text() == "\n".join(
        [
            "layer 0",
            "  0 true",
            "  1 literal 1",
            "  2 literal -1",
            "  3 literal 2",
            "  4 literal 3",
            "layer 1",
            "  5 * 1 2 3",
            "  6 * 2 4",
            "layer 2",
            "  7 + 4 5",
            "layer 3",
            "  8 * 1 3 7",
            "layer 4",
            "  9 + 6 8",
            "roots 9 3 0",
        ]
    )
    layered = example().layers(unary_chains=True)
    layered.check()
    rows = layered.text().split("\n")
    assert rows[:4] == ["layer 0", "  0 false", "  1 true", "  2 literal 1"]
    assert rows[-4:] == ["  0 * 2", "  1 * 1", "  2 * 0", "roots 0 1 2"]


def test_every_layer_has_one_kind():
    layers = example().layers(unary_chains=True).layers
    for number, layer in enumerate(layers[1:], 1):
        assert set(layer.kind.tolist()) == {AND if number % 2 else OR}


def test_deep_circuit_is_counted_without_being_made():
    depth = 1_000_000
    kind = np.r_[2, 2, 2, np.tile([AND, OR], depth // 2)].astype(np.uint8)
    literal = np.zeros(depth + 3, np.int32)
    literal[:3] = [1, 2, 3]
    children = np.stack([np.arange(2, depth + 2), np.tile([0, 1], depth // 2)], 1).ravel()
    offsets = np.r_[0, 0, 0, np.arange(0, 2 * depth + 1, 2)]
    circuit = circuit_from_arrays(kind, literal, offsets, children, [depth + 2], 3)
    layers = circuit.layers(unary_chains=True)
    # Two literals are handed on to almost every layer.
    assert layers.num_nodes == depth + 3 + 2 + (depth - 2) + (depth - 1) + 1
    assert layers.num_layers == depth + 2


def test_explain():
    text = example().explain("nodes")
    assert "5 = and 1 2 3" in text
    assert "9 = or 6 8  root 0" in text
    assert "2 = ~x1" in text
    levels = example().explain().split("\n")
    assert levels[2].split() == ["0", "5", "0", "0", "0", "0"]
    assert levels[3].split() == ["1", "2", "2", "0", "5", "1"]
    assert levels[5].split() == ["3", "1", "1", "0", "3", "3"]
    assert levels[-1] == "in the paper's layered form: 27 nodes, 28 edges, 6 layers"
    assert example().explain("layers") == example().layers(unary_chains=True).text()
    with pytest.raises(UnsupportedError, match="no stage 'assembly'"):
        example().explain("assembly")
    b = CircuitBuilder()
    wide = b.build([b.disjunction([b.literal(v) for v in range(1, 500)])])
    assert "... 300 more nodes ..." in wide.explain("nodes")


def test_dot(tmp_path):
    circuit = example()
    object.__setattr__(circuit, "names", ("rain", 'a "quoted" name', "z"))
    text = circuit.to_dot(tmp_path / "c.dot")
    assert (tmp_path / "c.dot").read_text() == text
    assert text.count(" -> ") == circuit.num_edges + circuit.num_roots
    assert '[shape=box, label="¬rain"]' in text
    assert '[shape=box, label="a \\"quoted\\" name"]' in text
    assert "  n9 -> n8;" in text
    assert "  r1 -> n3;" in text
    assert text.count("{") == text.count("}")
