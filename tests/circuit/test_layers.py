"""Sizes of the layered form are klaycircuits'; texts and DOT."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuit.random_circuits import AND, OR, random_arrays
from data import data_path
from derivable.circuit import load
from derivable.circuit.graph.builder import CircuitBuilder, circuit_from_arrays
from derivable.circuit.graph.circuit import Circuit
from derivable.core.diagnostics import UnsupportedError


@pytest.mark.parametrize(("name", "nodes", "edges"), [("sudoku_4", 2142, 2811), ("4-grid", 4864, 8777)])
def test_sizes_are_those_of_klaycircuits(name, nodes, edges, tmp_path):
    path = data_path(f"circuits/{name}.sdd.gz")
    layers = load(path).layers(unary_chains=True)
    assert (layers.num_nodes, layers.num_edges) == (nodes, edges)

    klay = pytest.importorskip("klay")
    plain = tmp_path / f"{name}.sdd"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    peer = klay.Circuit()
    peer.add_sdd_from_file(str(plain))
    peer.remove_unused_nodes()
    indices = peer._get_indices()[0]  # this also adds the layer of roots
    assert layers.num_nodes == peer.nb_nodes()
    assert layers.num_edges == sum(map(len, indices))
    assert layers.num_layers == len(indices) + 1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(0, 3), st.sampled_from([None, 3]))
def test_sizes_are_those_of_layers_made_one_by_one(seed, num_inner, num_roots, local):
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, 4, num_inner, local=local)
    circuit = circuit_from_arrays(*arrays, rng.integers(0, len(arrays[0]), num_roots), 4)
    nodes, edges, count = sizes_by_hand(circuit)
    layers = circuit.layers(unary_chains=True)
    assert (layers.num_nodes, layers.num_edges, layers.num_layers) == (nodes, edges, count)


def sizes_by_hand(circuit):
    """(nodes, edges, layers) of the paper's form, from the sets of nodes that are in each layer."""
    layer = {}
    for node in range(circuit.num_nodes):
        children = circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]].tolist()
        layer[node] = 1 + max((layer[child] for child in children), default=-1)
        if circuit.kind[node] in (AND, OR) and (layer[node] % 2 == 1) != (circuit.kind[node] == AND):
            layer[node] += 1
    top = max(layer.values(), default=0)
    alive = [set() for _ in range(top + 2)]
    for node in range(circuit.num_nodes):
        alive[layer[node]].add(node)
        for child in circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]].tolist():
            for number in range(layer[child], layer[node]):
                alive[number].add(child)
    for root in circuit.roots.tolist():
        for number in range(layer[root], top + 1):
            alive[number].add(root)
    constants = sum(int(kind) < 2 for kind in circuit.kind)
    nodes = sum(map(len, alive)) + 2 - constants + circuit.num_roots
    handed_on = sum(sum(layer[node] < number for node in alive[number]) for number in range(top + 1))
    return nodes, circuit.num_edges + handed_on + circuit.num_roots, top + 2


def example() -> Circuit:
    b = CircuitBuilder()
    x, not_x, y, z = (b.literal(number) for number in (1, -1, 2, 3))
    first = b.conjunction([x, y, b.disjunction([z, b.conjunction([x, not_x, y])])])
    return b.build([b.disjunction([first, b.conjunction([not_x, z])]), y, b.true()])


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
