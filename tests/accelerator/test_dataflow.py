"""The dataflow graph against enumeration of paths and orders, and what fusing may not change."""

import dataclasses

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
import golden_files
from derivable.accelerator.explore import dataflow as d
from derivable.accelerator.operators import evaluation, operators
from derivable.accelerator.operators.operators import Builder
from derivable.accelerator.operators.runtime import Elementwise, Layer, Vectors


def small():
    """A layer with what is fused behind it, two bindings that may run beside each other, and a sum of both."""
    random, builder = np.random.default_rng(0), Builder()
    x = builder.input("x", (4, 3, 8, 8))
    conv = builder.add("conv2d", x, builder.constant("weight", random.normal(size=(8, 3, 3, 3))))
    act = builder.add("relu", builder.add("mul", conv, builder.constant("scale", random.normal(size=(8, 1, 1)))))
    codes = builder.add("reshape", act, shape=(4, 8, 36))
    builder.part = "symbolic"
    one = builder.add("bind", codes, builder.constant("key", random.normal(size=(8, 36))))
    two = builder.add("unbind", codes, builder.constant("other", random.normal(size=(8, 36))))
    both = builder.add("add", one, two)
    return builder.build([both, builder.add("match_probability", one, codes)])


def test_printed_form():
    graph = small()
    flow = d.dataflow(graph, precision={"neural": "int8", "symbolic": "int4"})
    d.check(flow, graph)
    shown = f"{flow}\n\n{flow.explain({'neural': 'int8', 'symbolic': 'int4'})}\n"
    golden_files.compare("accelerator/dataflow", shown)


def test_what_is_fused():
    flow = d.dataflow(small())
    nodes = {node.operators: node for node in flow}
    assert set(nodes) == {
        ("conv2d_1", "mul_1", "relu_1", "reshape_1"),
        ("bind_1",),  # read twice
        ("unbind_1", "add_1"),
        ("match_probability_1",),
    }
    layer = nodes["conv2d_1", "mul_1", "relu_1", "reshape_1"]
    assert layer.work == Layer(4 * 36, 27, 8)
    assert layer.fused == (Elementwise(4 * 8 * 36), Elementwise(4 * 8 * 36))
    assert (layer.weights, layer.streamed, layer.outputs) == (8 * 27, 4 * 3 * 64 + 8, 4 * 8 * 36)
    assert [node.name for node in flow.layers] == ["conv2d_1"]
    assert [node.name for node in flow.vectors] == ["bind_1", "unbind_1"]
    assert flow.workload().vectors == (Vectors(32, 36), Vectors(32, 36))
    halved = d.dataflow(small(), precision={"neural": "int8", "symbolic": "int4"})
    assert halved.workload().vectors == (Vectors(32, 36, products=2),) * 2
    assert halved.workload().layers == flow.workload().layers
    memory = layer.memory({"neural": "int4", "symbolic": "int8"})
    assert (memory.weights, memory.inputs, memory.outputs) == (108, 388, 576)


def test_cycles_are_those_of_the_equations():
    flow = d.dataflow(small())
    layer, binding = flow.layers[0], flow.vectors[0]
    assert layer.cycles(8, 4, 2, 10**6) == (16 + 4 + 144 - 2) * 2 * 2
    assert layer.cycles(8, 4, 2, 1) == 2 * 4 * 8 * 36  # two operators, one lane
    assert binding.cycles(8, 4, 2, 64) == 4 * 5 * (24 + 36 - 1)
    (found,) = [node for node in flow if isinstance(node.work, Elementwise)]
    assert found.cycles(8, 4, 2, 64) == 2 * -(-4 * 8 * 36 // 64)


@st.composite
def graphs(draw):
    """Operators of random kinds over random earlier ones, all of shape [2, 4]."""
    random, builder = np.random.default_rng(draw(st.integers(0, 99))), Builder()
    names = [builder.input("x", (2, 4)), builder.constant("c", random.normal(size=(2, 4)))]
    weight = builder.constant("w", random.normal(size=(4, 4)) / 4)
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["linear", "bind", "relu", "add", "mul", "softmax", "permute", "reshape"]))
        builder.part = draw(st.sampled_from(["neural", "symbolic"]))
        one, two = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        if kind == "linear":
            name = builder.add(kind, one, weight)
        elif kind in ("bind", "add", "mul"):
            name = builder.add(kind, one, two)
        elif kind == "softmax":
            name = builder.add(kind, one, axis=1)
        elif kind == "permute":
            name = builder.add(kind, builder.add("reshape", one, shape=(4, 2)), order=(1, 0))
        elif kind == "reshape":
            name = builder.add(kind, one, shape=(2, 4))
        else:
            name = builder.add(kind, one)
        names.append(name)
    outputs = draw(st.lists(st.sampled_from(names[2:]), min_size=1, max_size=3, unique=True))
    return operators.without_dead(builder.build(outputs))


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(0, 99), st.integers(0, 1))
def test_random_graphs(graph, seed, least):
    random = np.random.default_rng(seed)
    weights = {}
    flow = d.dataflow(graph, weight=lambda node: weights.setdefault(node.name, float(random.integers(least, 9))))
    d.check(flow, graph)
    # The path is the heaviest of all, which networkx finds by other means.
    drawn = networkx.DiGraph()
    drawn.add_nodes_from(flow.by_name)
    drawn.add_node("end")
    for node in flow:
        drawn.add_edges_from(((name, node.name) for name in node.inputs), weight=0)
        drawn.add_edge(node.name, "end")
    for name, reader in drawn.edges:
        drawn.edges[name, reader]["weight"] = weights[name]
    heaviest = networkx.dag_longest_path_length(drawn)
    assert sum(weights[name] for name in flow.critical) == heaviest
    # What stands beside a node of the path could not stand earlier.
    place = {name: index for index, (node, others) in enumerate(flow.groups()) for name in [node.name]}
    for index, (_, others) in enumerate(flow.groups()):
        for other in (node.name for node in others):
            ancestors = networkx.ancestors(drawn, other)
            assert all(place[name] < index for name in ancestors if name in place)
    x = random.normal(size=(2, 4))
    for found, expected in zip(d.evaluate(flow, graph, x), evaluation.evaluate(graph, x)):
        np.testing.assert_array_equal(found, expected)


def test_the_validator():
    graph = small()
    flow = d.dataflow(graph)
    (first, *rest) = flow.nodes

    def changed(**changes):
        return dataclasses.replace(flow, **changes)

    for broken, message in (
        (changed(nodes=(*rest,)), "%conv2d_1 is not in exactly one node"),
        (changed(nodes=(*rest, first)), "comes before its input"),
        (changed(nodes=(dataclasses.replace(first, operators=first.operators[::-1]), *rest)), "begins with %reshape_1"),
        (changed(nodes=(first, dataclasses.replace(rest[0], inputs=()), *rest[1:])), "it says"),
        (changed(critical=flow.critical[:-1], beside=flow.beside[:-1]), "not every node"),
        (changed(critical=(flow.critical[0], flow.critical[-1]), beside=flow.beside), "not read it|not every node"),
        (changed(critical=("none", *flow.critical[1:])), "there is no node %none"),
        (changed(beside=(*flow.beside[1:], flow.beside[0])), "cannot run beside|runs before"),
    ):
        with pytest.raises(dv.DerivableError, match=message):
            d.check(broken, graph)
    builder = Builder()
    with pytest.raises(dv.DerivableError, match="no operator that computes"):
        d.dataflow(builder.build([builder.input("x", (2,))]))


def test_a_traced_model():
    """Block codes between two networks of the examples; products with codebooks stand in the chain of vector nodes."""
    torch = pytest.importorskip("torch")
    from derivable.accelerator.explore.schedule import costs
    from derivable.accelerator.explore.sizing import memories
    from derivable.accelerator.trace.trace import trace
    from reasoning.abduction import nvsa

    torch.manual_seed(0)
    x = torch.rand(1, 16, 1, 80, 80)
    graph = trace(nvsa(blocks=2, length=16).eval(), x)
    flow = d.dataflow(graph)
    d.check(flow, graph)
    for found, expected in zip(d.evaluate(flow, graph, x.numpy()), evaluation.evaluate(graph, x.numpy())):
        np.testing.assert_array_equal(found, expected)
    work = flow.workload()
    assert len(work.layers) == 6
    assert {type(node) for node in work.vectors} == {Layer, Vectors}
    cost = costs(work, 8, 8, 4)
    for node, row in zip(work.vectors, cost.vectors.tolist()):
        place = next(each for each in flow.vectors if each.work == node)
        assert row[1:] == np.minimum.accumulate([place.cycles(8, 8, n, 10**9) for n in (1, 2, 3, 4)]).tolist()
    found = memories(work, (8, 8, 4), neural="int8", symbolic="int4")
    largest = max(node.k * node.n * node.repeats for node in work.vectors if isinstance(node, Layer))
    assert found.a2.bytes >= largest // 2
