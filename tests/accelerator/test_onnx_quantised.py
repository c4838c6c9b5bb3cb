"""Files of ONNX with numbers that are rounded in them: QONNX's nodes and pairs of the standard, against NumPy."""

import warnings

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import DerivableWarning, UnsupportedError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx_ir")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from derivable.accelerator.trace.onnx_file import module_of_onnx, rounded_by_file  # noqa: E402

QONNX = "qonnx.custom_op.general"
SCALES = {"x": 0.02, "w": 0.015625, "h": 0.0625, "v": 0.03125}


def model(nodes, inputs=(("x", (6, 8)),), **constants):
    made = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(QONNX, 1)]
    return helper.make_model(made, opset_imports=imports)


def quant(name, bits=8, to=None, operator="Quant", **attributes):
    """A node of QONNX: its scale is the constant `s_NAME`."""
    inputs = [name, f"s_{name}", "nought", f"bits{bits}"][: 2 if operator == "BipolarQuant" else 4]
    return helper.make_node(operator, inputs, [to or f"{name}_q"], domain=QONNX, **attributes)


def pair(name, zero, least=None):
    """A pair of the standard, with a Clip between where there is a least step."""
    nodes = [helper.make_node("QuantizeLinear", [name, f"s_{name}", zero], [f"{name}_i"])]
    if least is not None:
        nodes.append(helper.make_node("Clip", [f"{name}_i", least], [f"{name}_c"]))
    steps = f"{name}_i" if least is None else f"{name}_c"
    return [*nodes, helper.make_node("DequantizeLinear", [steps, f"s_{name}", zero], [f"{name}_q"])]


def numbers():
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(0, 0.5, (5, 8)), "v": rng.normal(0, 0.1, (3, 5)), "b": rng.normal(0, 0.1, 5)}
    constants |= {f"s_{name}": scale for name, scale in SCALES.items()} | {"nought": 0.0, "bits8": 8.0, "bits4": 4.0}
    constants = {name: np.asarray(value, np.float32) for name, value in constants.items()}
    return constants | {"z8": np.int8(0), "u8": np.uint8(0), "low": np.int8(-127)}


BETWEEN = [helper.make_node("Gemm", ["x_q", "w_q", "b"], ["g"], name="first", transB=1),
           helper.make_node("Relu", ["g"], ["h"])]  # fmt: skip
LAST = helper.make_node("Gemm", ["h_q", "v_q"], ["y"], name="second", transB=1)


def of_qonnx():
    narrow = {"signed": 1, "narrow": 1}
    nodes = [quant("x", **narrow), quant("w", **narrow), *BETWEEN]
    return model([*nodes, quant("h", signed=0), quant("v", bits=4, **narrow), LAST], **numbers())


def of_standard():
    nodes = [*pair("x", "z8", "low"), *pair("w", "z8", "low"), *BETWEEN]
    return model([*nodes, *pair("h", "u8"), *pair("v", "z8", "low"), LAST], **numbers())


def steps(values, scale, least, most):
    return np.clip(np.rint(values / scale), least, most)


@pytest.mark.parametrize(("made", "bits"), [(of_qonnx, 4), (of_standard, 8)])
def test_layers_round_as_the_file_does(made, bits):
    """All numbers of the first layer are integers of NumPy; the second one rounds what the first one gives."""
    of, x = numbers(), np.random.default_rng(1).uniform(-2, 2, (6, 8)).astype(np.float32)
    scale = {name: float(np.float32(value)) for name, value in SCALES.items()}
    module = module_of_onnx(made())
    found = rounded_by_file(module)
    assert dict(found.precision) == {"first": "int8", "second": "int8"}
    assert found.scales["first"] == {"input": (scale["x"], 0), "weight": scale["w"]}
    assert found.scales["second"] == {"input": (scale["h"], -128), "weight": scale["v"]}

    most = 2 ** (bits - 1) - 1
    given = steps(x.astype(np.float64), scale["x"], -127, 127)
    weights = steps(of["w"].astype(np.float64), scale["w"], -127, 127)
    hidden = np.maximum(given @ weights.T * (scale["x"] * scale["w"]) + of["b"], 0)
    second = steps(hidden, scale["h"], 0, 255)
    heads = steps(of["v"].astype(np.float64), scale["v"], -most, most)
    expected = second @ heads.T * (scale["h"] * scale["v"])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        design = dv.accelerator.design(made(), torch.from_numpy(x), pes=16, calibration=[torch.from_numpy(x)] * 2)
    layers = [operator for operator in design.quantised.graph if operator.kind == "linear"]
    formats = design.quantised.formats
    assert set(formats.types.values()) == {"i8"}
    np.testing.assert_array_equal(formats.layer_steps(design.quantised.graph, layers[0]), weights)
    np.testing.assert_array_equal(formats.layer_steps(design.quantised.graph, layers[1]), heads)
    np.testing.assert_array_equal(formats.operands[layers[0].name, 0].steps(x.astype(np.float64)), given)
    run = design.simulate(torch.from_numpy(x), backend="python")
    # The hardware adds biases in steps of sums and rounds halves up: a step of the second input at most, and few.
    step = np.abs(heads).sum(1).max() * scale["h"] * scale["v"]
    assert np.abs(run.outputs[0] - expected).max() <= step
    assert np.mean(np.abs(run.outputs[0] - expected) < 2e-3) > 0.9


def test_weights_that_are_steps_in_the_file_and_of_two_values():
    constants = numbers()
    integers = np.random.default_rng(2).integers(-127, 128, (5, 8)).astype(np.int8)
    dequantised = helper.make_node("DequantizeLinear", ["w", "s_w"], ["w_q"])
    layer = helper.make_node("Gemm", ["x", "w_q"], ["y"], name="only", transB=1)
    made = module_of_onnx(model([dequantised, layer], **constants | {"w": integers}))
    assert rounded_by_file(made).scales == {"only": {"weight": SCALES["w"]}}
    x = torch.eye(8, dtype=torch.float64)
    np.testing.assert_allclose(made.double()(x)[0].numpy().T, integers * SCALES["w"], rtol=0)
    signs = module_of_onnx(model([quant("w", operator="BipolarQuant"), layer], **constants))
    assert dict(rounded_by_file(signs).precision) == {"only": "int4"}
    expected = np.where(constants["w"] >= 0, SCALES["w"], -SCALES["w"])
    np.testing.assert_allclose(signs.double()(x)[0].numpy().T, expected, rtol=0)


def test_convolutions_have_scales_of_channels_and_pools_lead_on():
    rng = np.random.default_rng(3)
    scales = np.array([0.01, 0.02, 0.04], np.float32).reshape(3, 1, 1, 1)
    constants = numbers() | {"w": rng.normal(0, 0.3, (3, 1, 3, 3)).astype(np.float32), "s_w": scales}
    nodes = [
        quant("x", narrow=1),
        helper.make_node("MaxPool", ["x_q"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        quant("w", narrow=1),
        helper.make_node("Conv", ["p", "w_q"], ["y"], name="conv"),
    ]
    found = rounded_by_file(module_of_onnx(model(nodes, [("x", (1, 1, 8, 8))], **constants)))
    np.testing.assert_array_equal(found.scales["conv"]["weight"], scales.ravel().astype(np.float64))
    assert found.scales["conv"]["input"] == (float(np.float32(SCALES["x"])), 0)


GEMM = helper.make_node("Gemm", ["x_q", "w"], ["y"], name="only", transB=1)


@pytest.mark.parametrize(
    ("nodes", "constants", "message"),
    [
        ([quant("x"), GEMM], {"nought": np.float32(3)}, r"Quant of ONNX, in node 'Quant_0': its zero point is 3.0"),
        ([quant("x"), GEMM], {"s_x": np.ones(8, np.float32)}, "has a scale of each channel"),
        ([quant("x", rounding_mode="FLOOR"), GEMM], {}, "it rounds by FLOOR"),
        ([quant("x", bits=4), quant("w", to="k"), helper.make_node("Gemm", ["x_q", "k"], ["y"], transB=1)], {},
         "its input has steps from -8 to 7, and with its weights the format is int8"),
        ([quant("x"), helper.make_node("Sigmoid", ["x_q"], ["y"])], {}, "is read by Sigmoid"),
        ([quant("x", to="y")], {}, "it rounds an output of the model"),
        ([quant("x", operator="BipolarQuant"), GEMM], {}, "it rounds to -1 and 1 what depends on the inputs"),
        ([quant("x"), GEMM], {"bits8": np.float32(12)}, "it has 12.0 bits"),
        ([*pair("x", "z8")[:1], helper.make_node("Identity", ["x_i"], ["y"])], {}, "no single DequantizeLinear"),
        ([*pair("x", "z8"), GEMM], {"z8": np.int16(0)}, "its steps are int16"),
        ([helper.make_node("DequantizeLinear", ["x", "s_x"], ["y"])], {}, "no QuantizeLinear is in front"),
    ],
)  # fmt: skip
def test_what_the_hardware_does_not_round_so_is_refused(nodes, constants, message):
    with pytest.raises(UnsupportedError, match=message):
        module_of_onnx(model(nodes, **numbers() | constants))


def test_a_step_that_the_hardware_has_not_is_a_warning():
    with pytest.warns(DerivableWarning, match="begin with -128 in the file, and with -127"):
        module_of_onnx(model([*pair("x", "z8"), GEMM], **numbers()))
    layer = helper.make_node("Gemm", ["x", "w_q"], ["y"], transB=1)
    with pytest.raises(UnsupportedError, match="a weight is -128 steps"):
        module_of_onnx(model([*pair("w", "z8"), layer], **numbers() | {"w": np.full((5, 8), -9, np.float32)}))
