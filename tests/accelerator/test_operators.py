"""The operator graph: every kind against torch, composite kinds against what they are made of, passes, errors."""

import dataclasses

import numpy as np
import pytest
import torch

import derivable as dv
import golden_files
from derivable.accelerator.operators import evaluation, kinds
from derivable.accelerator.operators.evaluation import evaluate
from derivable.accelerator.operators.kinds import KINDS, Moved
from derivable.accelerator.operators.operators import Builder, check, expand, fold_batch_norm, fold_constants
from derivable.accelerator.operators.runtime import Elementwise, Layer, Vectors

F = torch.nn.functional


# kind, shapes of the inputs, attributes, what torch computes, work
CASES = [
    ("conv2d", [(2, 3, 9, 8), (4, 3, 3, 2), (4,)], {"stride": (2, 1), "padding": (1, 0)},
     lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0)), Layer(2 * 5 * 7, 18, 4)),
    ("conv2d", [(1, 4, 9, 9), (6, 2, 3, 3)], {"dilation": (2, 2), "groups": 2},
     lambda x, w: F.conv2d(x, w, dilation=2, groups=2), Layer(25, 18, 3, repeats=2)),
    ("linear", [(2, 5, 3), (4, 3), (4,)], {}, F.linear, Layer(10, 3, 4)),
    ("matmul", [(7, 3), (3, 4)], {}, torch.matmul, Layer(7, 3, 4)),
    ("matmul", [(2, 7, 3), (3, 4)], {}, torch.matmul, Layer(14, 3, 4)),
    ("matmul", [(7, 3), (2, 3, 4)], {}, torch.matmul, Layer(8, 3, 7)),
    ("matmul", [(5, 1, 7, 3), (2, 3, 4)], {}, torch.matmul, Layer(35, 3, 4, repeats=2)),
    ("match_probabilities", [(2, 3, 2, 8), (5, 2, 8)], {}, dv.vsa.match_probabilities, Layer(6, 16, 5)),
    ("match_probabilities", [(2, 3, 2, 8), (3, 5, 2, 8)], {}, dv.vsa.match_probabilities, Layer(2, 16, 5, repeats=3)),
    ("bundle", [(5, 2, 8), (3, 5)], {"rank": 2}, lambda items, w: dv.vsa.bundle(items, weights=w), Layer(3, 5, 16)),
    ("bundle", [(3, 5, 2, 8), (3, 5)], {"rank": 2}, lambda items, w: dv.vsa.bundle(items, weights=w),
     Layer(1, 5, 16, repeats=3)),
    ("bundle", [(5, 8), (2, 3, 5)], {"rank": 1}, lambda items, w: dv.vsa.bundle(items, weights=w, model="hrr"),
     Layer(6, 5, 8)),
    ("bind", [(3, 1, 2, 8), (4, 2, 8)], {}, dv.vsa.bind, Vectors(24, 8)),
    ("unbind", [(1, 2, 7), (4, 2, 7)], {}, dv.vsa.unbind, Vectors(8, 7)),
    ("relu", [(3, 4)], {}, torch.relu, Elementwise(12)),
    ("tanh", [(3, 4)], {}, torch.tanh, Elementwise(12)),
    ("exp", [(3, 4)], {}, torch.exp, Elementwise(12)),
    ("sin", [(3, 4)], {}, torch.sin, Elementwise(12, 18)),
    ("cos", [(3, 4)], {}, torch.cos, Elementwise(12, 17)),
    ("erf", [(3, 4)], {}, torch.erf, Elementwise(12, 22)),
    ("log", [(3, 4)], {}, torch.log, Elementwise(12)),
    ("sqrt", [(3, 4)], {}, torch.sqrt, Elementwise(12)),
    ("abs", [(3, 4)], {}, torch.abs, Elementwise(12)),
    ("gelu", [(3, 4)], {}, F.gelu, Elementwise(12, 4)),
    ("gelu", [(3, 4)], {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh"), Elementwise(12, 4)),
    ("clamp", [(3, 4)], {"low": -0.5, "high": 0.25}, lambda x: x.clamp(-0.5, 0.25), Elementwise(12)),
    ("clamp", [(3, 4)], {"low": 0.1}, lambda x: x.clamp(min=0.1), Elementwise(12)),
    ("softmax", [(3, 4)], {"axis": 0}, lambda x: x.softmax(0), Elementwise(12, 3)),
    ("add", [(3, 1, 4), (2, 1)], {}, torch.add, Elementwise(24)),
    ("sub", [(3, 4), ()], {}, torch.sub, Elementwise(12)),
    ("mul", [(3, 4), (4,)], {}, torch.mul, Elementwise(12)),
    ("div", [(3, 4), (3, 1)], {}, torch.div, Elementwise(12)),
    ("maximum", [(3, 4), (3, 1)], {}, torch.maximum, Elementwise(12)),
    ("minimum", [(3, 4), (3, 1)], {}, torch.minimum, Elementwise(12)),
    ("greater", [(3, 4), (3, 1)], {}, torch.greater, Elementwise(12)),
    ("equal", [(3, 4), (3, 4)], {}, torch.eq, Elementwise(12, 2)),
    ("floor", [(3, 4)], {}, torch.floor, Elementwise(12)),
    ("where", [(3, 1), (3, 4), (4,)], {}, lambda c, x, y: torch.where(c != 0, x, y), Elementwise(12, 4)),
    ("sum", [(3, 4, 5)], {"axes": (0, 2)}, lambda x: x.sum((0, 2)), Elementwise(60)),
    ("prod", [(3, 4)], {"axes": (1,), "keepdims": True}, lambda x: x.prod(1, keepdim=True), Elementwise(12)),
    ("max", [(3, 4)], {"axes": (1,)}, lambda x: x.amax(1), Elementwise(12)),
    ("min", [(3, 4)], {"axes": (0, 1)}, lambda x: x.amin(), Elementwise(12)),
    ("argmax", [(3, 4)], {"axis": 1, "keepdims": True}, lambda x: x.argmax(1, keepdim=True), Elementwise(12, 3)),
    ("max_pool2d", [(2, 3, 9, 8)], {"kernel": (3, 2), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 2)},
     lambda x: F.max_pool2d(x, (3, 2), 2, 1, (1, 2)), Elementwise(120, 6)),
    ("avg_pool2d", [(2, 3, 9, 8)], {"kernel": (3, 2), "stride": (2, 2), "padding": (1, 1)},
     lambda x: F.avg_pool2d(x, (3, 2), 2, 1), Elementwise(150, 6)),
    ("neg", [(3, 4)], {}, torch.neg, Elementwise(12)),
    ("sigmoid", [(3, 4)], {}, torch.sigmoid, Elementwise(12, 2)),
    ("log_softmax", [(3, 4)], {"axis": 1}, lambda x: x.log_softmax(1), Elementwise(12, 4)),
    ("mean", [(3, 4, 5)], {"axes": (1,), "keepdims": True}, lambda x: x.mean(1, keepdim=True), Elementwise(60)),
    ("match_probability", [(3, 1, 2, 8), (4, 2, 8)], {}, dv.vsa.match_probability, Elementwise(192, 2)),
    ("batch_norm", [(2, 3, 4, 5), (3,), (3,), (3,), (3,)], {"eps": 0.1},
     lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, eps=0.1), Elementwise(120, 2)),
    ("normalise", [(3, 2, 8)], {"rank": 1}, dv.vsa.normalise, Elementwise(48, 3)),
    ("to_mass", [(3, 4)], {}, lambda x: x.clamp(min=0) / x.clamp(min=0).sum(-1, keepdim=True), Elementwise(12, 3)),
    ("reshape", [(3, 4)], {"shape": (2, 6)}, lambda x: x.reshape(2, 6), Moved(0)),
    ("permute", [(3, 4, 5)], {"order": (2, 0, 1)}, lambda x: x.permute(2, 0, 1), Moved(60)),
    ("slice", [(7, 4)], {"starts": (1, 2), "lengths": (3, 1), "steps": (2, 1)}, lambda x: x[1:6:2, 2:3], Moved(3)),
    ("index", [(3, 4)], {"axis": 1, "places": (3, 0, 0)}, lambda x: x[:, [3, 0, 0]], Moved(9)),
    ("concatenate", [(3, 4), (3, 1)], {"axis": 1}, lambda x, y: torch.cat((x, y), 1), Moved(15)),
    ("expand", [(3, 1)], {"shape": (2, 3, 4)}, lambda x: x.expand(2, 3, 4), Moved(24)),
    ("roll", [(3, 4)], {"axes": (1, 0), "shifts": (1, -1)}, lambda x: x.roll((1, -1), (1, 0)), Moved(12)),
]  # fmt: skip


def graph_of(kind, shapes, attributes):
    builder = Builder()
    names = [builder.input(f"x{i}", shape, "float64") for i, shape in enumerate(shapes)]
    return builder.build([builder.add(kind, *names, **attributes)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{len(str(case[1:3]))}")
def test_every_kind_is_what_torch_computes(case):
    kind, shapes, attributes, reference, work = case
    graph = graph_of(kind, shapes, attributes)
    check(graph)
    random = np.random.default_rng(0)
    arrays = [random.normal(size=shape) for shape in shapes]
    if kind in ("log", "sqrt", "batch_norm", "div"):
        arrays = [np.abs(array) + 0.1 for array in arrays]
    if kind == "where":
        arrays[0] = (arrays[0] > 0).astype(np.float64)
    expected = reference(*map(torch.from_numpy, map(np.asarray, arrays))).numpy()
    for made in (graph, expand(graph)):
        check(made)
        (found,) = evaluate(made, arrays)
        assert found.shape == expected.shape == made[made.outputs[0]].shape
        # The SIMD unit has polynomials for these.
        near = 2e-6 if made is not graph and kind in ("sin", "cos", "erf") else 1e-12
        np.testing.assert_allclose(found, expected, rtol=near, atol=near)
    assert graph.work(graph.operators[-1]) == work
    assert all(operator.row.composite is None for operator in expand(graph))


def test_every_kind_has_a_case():
    assert {"input", "constant", "take"} | {case[0] for case in CASES} == set(KINDS.names())


def test_work_counts_the_products():
    """By counting, independent of how layers are shaped."""
    for kind, shapes, attributes, *_ in CASES:
        graph = graph_of(kind, shapes, attributes)
        work = graph.work(graph.operators[-1])
        if kind in ("matmul", "linear"):
            k, result = shapes[0][-1], graph.operators[-1].shape
            assert work.macs == k * int(np.prod(result))
        if kind == "conv2d":
            assert work.macs == int(np.prod(shapes[1][1:])) * int(np.prod(graph.operators[-1].shape))
        held = graph.stationary(graph.operators[-1])
        if isinstance(work, Layer):  # what waits has k times n entries for each repeat
            assert int(np.prod(shapes[held])) == work.k * work.n * work.repeats
        else:
            assert held is None


def test_zeros_have_no_direction_and_no_mass():
    for kind, attributes, expected in (("normalise", {"rank": 1}, 0.0), ("to_mass", {}, 0.25)):
        (found,) = evaluate(graph_of(kind, [(2, 4)], attributes), [np.zeros((2, 4))])
        assert (found == expected).all()


def test_take_reads_rows_by_number():
    builder = Builder()
    book, x = builder.constant("book", np.arange(12.0).reshape(4, 3)), builder.input("x", (2, 5, 4))
    graph = builder.build([builder.add("take", book, builder.add("argmax", x, axis=2))])
    check(graph)
    x = np.random.default_rng(0).normal(size=(2, 5, 4))
    assert (evaluate(graph, x)[0] == np.arange(12.0).reshape(4, 3)[x.argmax(2)]).all()


def network(seed=0):
    random, builder = np.random.default_rng(seed), Builder()
    x = builder.input("x", (2, 3, 8, 8))
    weight = builder.constant("stem.weight", random.normal(size=(4, 3, 3, 3)).astype(np.float32))
    parameters = [builder.constant(f"norm.{n}", random.uniform(0.5, 1, 4)) for n in ("weight", "bias", "mean", "var")]
    once = builder.add("conv2d", x, weight, stride=(2, 2), padding=(1, 1))
    normed = builder.add("batch_norm", builder.add("batch_norm", once, *parameters), *parameters, eps=0.5)
    builder.part = "symbolic"
    codes = builder.add("reshape", builder.add("relu", normed), shape=(8, 2, 8))
    book = builder.constant("book", random.normal(size=(5, 2, 8)))
    turned = builder.add("permute", builder.add("mul", book, builder.scalar(2.0)), order=(0, 2, 1))
    found = builder.add("match_probabilities", codes, builder.add("permute", turned, order=(0, 2, 1)))
    return builder.build([found, builder.add("neg", once)] if seed else [found])


def test_passes_change_nothing():
    x = np.random.default_rng(1).normal(size=(2, 3, 8, 8))
    for seed in (0, 1):  # in the second the convolution is read twice, so that nothing can be folded into it
        graph = network(seed)
        check(graph)
        expected = evaluate(graph, x)
        assert {kind: kind in {o.kind for o in graph} for kind in ("batch_norm", "mul")} == {
            "batch_norm": True,
            "mul": True,
        }
        for passes in ([fold_batch_norm], [fold_constants], [expand], [fold_batch_norm, expand, fold_constants]):
            made = graph
            for one in passes:
                made = one(made)
                check(made)
            for found, wanted in zip(evaluate(made, {"x": x}), expected):
                np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)
            if fold_batch_norm in passes:
                assert not [o for o in made if o.kind == "batch_norm"]
                assert [len(o.inputs) for o in made if o.kind == "conv2d"] == [2 if seed else 3]
        assert sum(o.kind in ("permute", "mul") and o.part == "symbolic" for o in fold_constants(graph)) == 0


def test_values_are_those_of_every_operator():
    graph = network()
    x = np.random.default_rng(1).normal(size=(2, 3, 8, 8))
    found = evaluation.values(graph, x)
    assert list(found) == [operator.name for operator in graph]
    assert all(found[operator.name].shape == operator.shape for operator in graph)
    assert (found[graph.outputs[0]] == evaluate(graph, x)[0]).all()


def test_printed_form():
    shown = f"{network()}\n\n{fold_constants(expand(fold_batch_norm(network())))}"
    golden_files.compare("accelerator/operators", shown)


def wrong(graph, called, **changes):
    return dataclasses.replace(
        graph,
        operators=tuple(dataclasses.replace(o, **changes) if o.name == called else o for o in graph.operators),
    )


def test_the_validator_names_the_operator():
    graph = network()
    reasons = [
        (wrong(graph, "conv2d_1", shape=(2, 4, 4, 5)), r"%conv2d_1: its shape is \[2, 4, 4, 5\], conv2d gives"),
        (wrong(graph, "conv2d_1", kind="conv3d"), "%conv2d_1: there is no kind of operator 'conv3d'"),
        (wrong(graph, "conv2d_1", attributes=()), "%conv2d_1: conv2d has the attributes"),
        (wrong(graph, "relu_1", inputs=("later",)), "%relu_1: its input %later does not come before it"),
        (wrong(graph, "relu_1", inputs=()), "%relu_1: relu has 0 inputs, expected 1"),
        (wrong(graph, "relu_1", part="neuronal"), "%relu_1: the part is 'neuronal'"),
        (wrong(graph, "relu_1", dtype="complex64"), "%relu_1: no operator has numbers of dtype 'complex64'"),
        (wrong(graph, "relu_1", dtype="int64"), "%relu_1: relu does not give int64"),
        (wrong(graph, "book", dtype="float32"), "%book: the constant is float32"),
        (wrong(graph, "relu_1", name="conv2d_1"), "two operators have this name"),
        (dataclasses.replace(graph, constants={}), "%stem.weight: the constant has no array"),
        (dataclasses.replace(graph, outputs=("match",)), "the output %match is no operator"),
        (dataclasses.replace(graph, inputs=()), "are not the operators of kind input"),
        (dataclasses.replace(graph, constants={**graph.constants, "b": np.ones(1)}), "'b' has an array and no"),
        (dataclasses.replace(graph, operators=graph.operators[::-1]), "does not come before it"),
    ]
    for broken, message in reasons:
        with pytest.raises(dv.DerivableError, match=message):
            check(broken)
    empty = Builder()
    empty.input("x", (0, 3))
    with pytest.raises(dv.DerivableError, match="has no entry"):
        check(empty.build(["x"]))


def test_shapes_that_do_not_fit_are_errors_of_ours():
    wrongs = [
        ("conv2d", [(2, 3, 4, 4), (4, 2, 3, 3)], {}, "channels differ"),
        ("conv2d", [(2, 3, 2, 2), (4, 3, 3, 3)], {}, "does not fit into"),
        ("conv2d", [(2, 3, 4), (4, 3, 3, 3)], {}, "expected \\[batch"),
        ("linear", [(2, 3), (4, 2)], {}, "linear of"),
        ("linear", [(2, 3), (4, 3), (3,)], {}, "the bias"),
        ("matmul", [(2, 3), (2, 3)], {}, "matmul of"),
        ("add", [(2, 3), (2, 4)], {}, "do not broadcast"),
        ("bind", [(2, 3), (2, 4)], {}, "differ in length"),
        ("match_probability", [(8,), (8,)], {}, "both end in"),
        ("match_probabilities", [(2, 8), (2, 8)], {}, "the codebook is"),
        ("bundle", [(4, 2, 8), (3,)], {}, "numbers of items differ"),
        ("batch_norm", [(2, 3), (3,), (3,), (2,), (3,)], {}, "channels differ"),
        ("sum", [(2, 3)], {"axes": (2,)}, "axes are"),
        ("sum", [(2, 3)], {"axes": (1, 1)}, "name one twice"),
        ("reshape", [(2, 3)], {"shape": (5,)}, "has 6 entries"),
        ("permute", [(2, 3)], {"order": (0, 0)}, "the order"),
        ("slice", [(4,)], {"starts": (1,), "lengths": (3,), "steps": (2,)}, "are not all in axis 0"),
        ("index", [(4,)], {"axis": 0, "places": (4,)}, "places 4 to 4"),
        ("concatenate", [(2, 3), (3, 3)], {"axis": 1}, "beside each other"),
        ("expand", [(2, 3)], {"shape": (3, 3)}, "do not broadcast"),
        ("roll", [(2, 3)], {"axes": (0,), "shifts": (1, 1)}, "2 shifts along 1 axes"),
        ("max_pool2d", [(2, 3)], {"kernel": (2, 2)}, "pooling of"),
        ("dot", [(2,)], {}, "there is no kind of operator 'dot'"),
    ]
    for kind, shapes, attributes, message in wrongs:
        with pytest.raises(dv.DerivableError, match=message):
            graph_of(kind, shapes, attributes)


def test_inputs_that_do_not_fit_are_errors_of_ours():
    graph = network()
    for inputs, message in (
        (np.zeros((1, 3, 8, 8)), r"the input %x is \[1, 3, 8, 8\], expected \[2, 3, 8, 8\]"),
        ({"y": np.zeros(3)}, "the model takes"),
        ([np.zeros(3)] * 2, "2 inputs are given, the model takes 1"),
    ):
        with pytest.raises(dv.DerivableError, match=message):
            evaluate(graph, inputs)
    with pytest.raises(dv.DerivableError, match="no operator %relu_2"):
        graph["relu_2"]


def test_a_kind_is_one_row():
    row = kinds.Kind(
        "simd", (1, 1), {}, lambda s, at: s[0], lambda x, at: x[0] ** 2, lambda s, r, at: Elementwise(kinds.size(r))
    )
    KINDS.add("square_of_mine", row)
    try:
        graph = graph_of("square_of_mine", [(2, 3)], {})
        check(graph)
        assert (evaluate(graph, np.full((2, 3), 3.0))[0] == 9).all()
    finally:
        KINDS.remove("square_of_mine")
