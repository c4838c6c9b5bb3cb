"""Files of ONNX: every operator by the examples of the standard, whole models by the evaluator of onnx."""

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.accelerator.trace.trace import trace
from derivable.core.diagnostics import ParseError, UnsupportedError

from .test_exported import MODELS

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx_ir")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from derivable.accelerator.trace.onnx_file import input_shapes, module_of_onnx  # noqa: E402
from derivable.accelerator.trace.onnx_operators import OPERATORS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::derivable.accelerator.CalibrationWarning")


def graph(nodes, inputs, outputs=("y",), version=20, **constants):
    """A model of nodes, with inputs of float32 of these shapes."""
    made = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", version)])


def cnn():
    generator = np.random.default_rng(0)
    weights = {
        "w1": generator.normal(0, 0.3, (4, 1, 3, 3)),
        "b1": generator.normal(0, 0.1, 4),
        "scale": np.ones(4) * 1.1,
        "shift": np.zeros(4),
        "mean": np.zeros(4) + 0.1,
        "variance": np.ones(4) * 0.9,
        "w2": generator.normal(0, 0.2, (3, 64)),
        "b2": generator.normal(0, 0.1, 3),
    }
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    nodes = [
        helper.make_node("Conv", ["pictures", "w1", "b1"], ["c"], name="/first/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["p", "wanted"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], transB=1),
    ]
    shapes = {"zero": np.array([0]), "rest": np.array([-1])}
    return graph(nodes, {"pictures": ["batch", 1, 8, 8]}, **weights, **shapes)


def reference(model, *arrays):
    names = [value.name for value in model.graph.input]
    return ReferenceEvaluator(model).run(None, dict(zip(names, arrays)))


def test_a_model_whose_shapes_are_computed(tmp_path):
    model, pictures = cnn(), np.random.default_rng(1).random((2, 1, 8, 8), dtype=np.float32)
    onnx.save(model, tmp_path / "cnn.onnx")
    (expected,) = reference(model, pictures)
    for source in (tmp_path / "cnn.onnx", str(tmp_path / "cnn.onnx"), model):
        found = trace(source, torch.from_numpy(pictures))
        assert found.inputs == ("pictures",)
        assert [operator.kind for operator in found if operator.kind in ("conv2d", "linear")] == ["conv2d", "linear"]
        np.testing.assert_allclose(dv.accelerator.evaluate(found, pictures)[0], expected, atol=1e-5)
    assert input_shapes(module_of_onnx(model)) == {"pictures": [1, 1, 8, 8]}


def test_a_design_of_a_file_is_that_of_the_module(tmp_path):
    model, pictures = cnn(), np.random.default_rng(1).random((4, 1, 8, 8), dtype=np.float32)
    onnx.save(model, tmp_path / "cnn.onnx")
    made = dv.accelerator.design(tmp_path / "cnn.onnx", pictures[:1], pes=64, precision="int8", calibration=[pictures])
    run = made.simulate(pictures, "python")
    (expected,) = reference(model, pictures)
    assert run.passes == 4
    assert np.abs(run.outputs[0] - expected).max() <= 0.03 * np.abs(expected).max()


def test_nodes_with_names_of_python_and_of_modules():
    nodes = [
        helper.make_node("Relu", ["self"], ["train"], name="forward"),
        helper.make_node("Neg", ["train"], ["0.out"], name="forward"),
        helper.make_node("Split", ["0.out"], ["", "half"], name="class", axis=1, num_outputs=2),
        helper.make_node("Identity", ["half"], ["y"]),
    ]
    model, x = graph(nodes, {"self": [2, 4]}), np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    found = dv.accelerator.evaluate(trace(model, torch.from_numpy(x)), x)
    np.testing.assert_allclose(found[0], -np.maximum(x, 0)[:, 2:], atol=1e-6)


@pytest.mark.parametrize(("version", "axis"), [(11, None), (11, 2), (12, -1), (13, None), (13, 1)])
def test_softmax_of_old_and_new_versions(version, axis):
    """Before version 13, all axes from one on were one."""
    options = {} if axis is None else {"axis": axis}
    model = graph([helper.make_node("Softmax", ["x"], ["y"], **options)], {"x": [2, 3, 4]}, version=version)
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    powers = np.exp(x)
    first = (axis if axis is not None else 1) % 3
    axes = tuple(range(first, 3)) if version < 13 else (axis if axis is not None else -1,)
    found = dv.accelerator.evaluate(trace(model, torch.from_numpy(x)), x)
    np.testing.assert_allclose(found[0], powers / powers.sum(axes, keepdims=True), atol=1e-9)


# Every operator, by the examples of the standard

# Equal entries of a top k may come in any order, and an empty maximum is nothing.
_OTHERWISE = ("test_top_k_same_values", "test_reduce_max_empty", "test_reduce_min_empty", "test_flexattention_relative")
_TYPES = {"float32", "float64", "int32", "int64", "bool"}


@pytest.mark.slow
def test_operators_by_the_examples_of_the_standard():
    """What is not refused gives what the standard says, of 680 examples and more, in which every operator is but those
    whose examples are all of other types."""
    from onnx.backend.test.case.node import collect_testcases

    checked, covered, refused = 0, set(), 0
    for case in collect_testcases(None):
        nodes = case.model.graph.node
        arrays = [array for data in case.data_sets for part in data for array in part if array is not None]
        types = {array.dtype.name if hasattr(array, "dtype") else "sequence" for array in arrays}
        is_ours = all(node.op_type in OPERATORS and not node.domain for node in nodes) and not case.model.functions
        if not is_ours or not types <= _TYPES or case.name.startswith(_OTHERWISE):
            continue
        try:
            module = module_of_onnx(case.model)
            for inputs, outputs in case.data_sets:
                with torch.no_grad():
                    found = module(*(torch.from_numpy(np.array(each)) for each in inputs))
                for one, expected in zip(found, outputs, strict=True):
                    assert one.shape == np.shape(expected), case.name
                    np.testing.assert_allclose(
                        one.numpy().astype(float), np.asarray(expected).astype(float), 1e-4, 1e-4, err_msg=case.name
                    )
        except UnsupportedError:
            refused += 1
            continue
        checked += 1
        covered |= {node.op_type for node in nodes}
    assert checked >= 680
    assert refused <= 130
    assert len(covered) >= len(OPERATORS) - 6, sorted(set(OPERATORS) - covered)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("is_dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_what_torch_exports(name, is_dynamo, tmp_path):
    pytest.importorskip("onnxscript")
    if (name, is_dynamo) in (("operations", True), ("transformer", False)):
        pytest.skip("torch does not export it")
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make().eval(), torch.randint(0, 20, (2, 4)) if shape is None else torch.rand(shape)
    file = tmp_path / "model.onnx"
    torch.onnx.export(model, (x,), file, dynamo=is_dynamo, verbose=False)
    found = dv.accelerator.evaluate(trace(file, x), x.numpy())
    expected = reference(onnx.load(file), x.numpy())
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


# Errors


def test_operators_that_there_are_not_are_named_together(tmp_path):
    nodes = [
        helper.make_node("Det", ["x"], ["d"], name="first"),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("NonZero", ["r"], ["y"]),
    ]
    onnx.save(graph(nodes, {"x": [2, 2]}), tmp_path / "odd.onnx")
    with pytest.raises(UnsupportedError) as caught:
        trace(tmp_path / "odd.onnx", torch.rand(2, 2))
    assert (
        caught.value.message
        == "operators of ONNX without a function here: Det in node 'first'; NonZero in node 'NonZero_2'"
    )
    assert caught.value.source.endswith("odd.onnx")


def test_errors_name_the_node():
    exclusive = [helper.make_node("CumSum", ["x", "axis"], ["y"], name="running", exclusive=1)]
    with pytest.raises(UnsupportedError, match="CumSum of ONNX, in node 'running': a cumulative sum"):
        trace(graph(exclusive, {"x": [2, 3]}, axis=np.array(1)), torch.rand(2, 3))
    wide = [
        helper.make_node("Cast", ["x"], ["shape"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    with pytest.raises(
        UnsupportedError, match="Reshape of ONNX, in node 'Reshape_1': its input 1 depends on the inputs"
    ):
        trace(graph(wide, {"x": [1]}), torch.ones(1))
    old = graph([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, version=9)
    with pytest.raises(UnsupportedError, match="written for version 9 of the operators, expected 11 or later"):
        trace(old, torch.ones(2))


def test_files_that_are_none(tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ParseError, match="this is no model of ONNX"):
        trace(tmp_path / "text.onnx", torch.ones(2))
    with pytest.raises(ParseError, match="the file cannot be read"):
        trace(tmp_path / "none.onnx", torch.ones(2))


def test_the_command_line_takes_files(tmp_path, capsys):
    from derivable.cli.main import main

    onnx.save(cnn(), tmp_path / "cnn.onnx")
    np.savez(tmp_path / "samples.npz", pictures=np.random.default_rng(0).random((3, 1, 8, 8)))
    command = ["accelerate", str(tmp_path / "cnn.onnx"), "-o", str(tmp_path / "out"), "--pes", "32"]
    samples = ["--calibrate", str(tmp_path / "samples.npz")]
    assert main([*command, *samples, "--precision", "int8", "--sweep", "lanes=4,8"]) == 0
    assert "designs that no other beats" in capsys.readouterr().out
    assert (tmp_path / "out" / "sweep.csv").read_text().count("\n") > 3
    assert (tmp_path / "out" / "sweep.svg").exists()
    assert main(command) != 0
    assert "the model has the inputs pictures [1, 1, 8, 8]" in capsys.readouterr().err
    for wrong, message in (("colour=1", "no dimension 'colour'"), ("lanes=a", "--sweep has 'lanes=a'")):
        assert main([*command, *samples, "--sweep", wrong]) != 0
        assert message in capsys.readouterr().err
