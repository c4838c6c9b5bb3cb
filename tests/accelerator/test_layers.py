"""Formats of layers by name, steps from outside, and steps that are learned."""

import itertools
import shutil

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.accelerator.numbers.layers import described, parse_precision
from derivable.accelerator.numbers.learned import LearnedSteps, rounded
from derivable.core.diagnostics import DomainError

TOOLS = {"icarus": "iverilog", "verilator": "verilator"}
pytestmark = pytest.mark.filterwarnings("ignore::derivable.accelerator.CalibrationWarning")


class Network(torch.nn.Module):
    """Pictures [batch, 1, 8, 8] to probabilities of five codes; some factors of the batch norm are negative."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4)
        self.body = torch.nn.Sequential(torch.nn.Linear(4 * 36, 8), torch.nn.ReLU(), torch.nn.Linear(8, 16))
        self.book: torch.Tensor
        self.register_buffer("book", dv.vsa.codebook(5, 2, 8, generator=1))

    def layers(self, x):
        return self.body(self.norm(self.conv1(x)).relu().flatten(1))

    def forward(self, x):
        return dv.vsa.match_probabilities(self.layers(x).unflatten(-1, (2, 8)).softmax(-1), self.book)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    model = Network()
    with torch.no_grad():
        model.norm.weight.copy_(torch.tensor([0.5, -1.0, 1.5, 0.8]))
        model.norm.bias.uniform_(0, 1)
        model(torch.rand(32, 1, 8, 8))
    return model.eval()


X = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))
SAMPLES = [torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(2))]


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ({"conv1": "int8", "*": "int4"}, {"neural": "int4", "symbolic": "int4", "conv2d_1": "int8"}),
        (
            "conv1=int8, body.2=int8, *=int4",
            {"neural": "int4", "symbolic": "int4", "conv2d_1": "int8", "linear_2": "int8"},
        ),
        # The nearest name holds.
        (
            {"body": "int4", "linear_1": "int8", "neural": "int8", "symbolic": "int4"},
            {"neural": "int8", "symbolic": "int4", "linear_2": "int4"},
        ),
        (
            {"match_probabilities_1": "int8", "*": "int4"},
            {"neural": "int4", "symbolic": "int4", "match_probabilities_1": "int8"},
        ),
    ],
)
def test_formats_of_layers(network, precision, expected, tmp_path):
    made = dv.accelerator.design(network, X, pes=64, precision=precision, calibration=SAMPLES)
    assert made.precision == expected
    assert made.quantised is not None
    types = made.quantised.formats.types
    names = {"linear_1", "linear_2", "conv2d_1", "match_probabilities_1.matmul"}
    of_parts = {name: expected["symbolic" if "." in name else "neural"] for name in names}
    for name in names:
        assert types[name] == expected.get(name.partition(".")[0], of_parts[name]).replace("int", "i")
    assert described(expected) in str(made)
    made.save(tmp_path)
    assert dv.accelerator.load(tmp_path).precision == expected
    run = made.simulate(X, backend="python")
    for backend in ("icarus", "verilator"):
        if shutil.which(TOOLS[backend]):
            other = made.simulate(X, backend=backend)
            assert other.cycles == run.cycles
            np.testing.assert_array_equal(other.outputs[0], run.outputs[0])


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ({"conv": "int8", "*": "int4"}, "(?s)precision is of 'conv'.*did you mean `conv1`"),
        ({"relu_1": "int8", "*": "int4"}, "(?s)precision is of 'relu_1'.*layers are conv2d_1, conv1"),
        ({"conv1": "int8"}, r"(?s)no format of the neural part.*\"\*\": \"int4\""),
        ({"conv1": "int7", "*": "int4"}, "there is no precision 'int7'"),
        ({1: "int8"}, "a format of 1, expected a name"),
        ("int8/int8/int4", "precision is 'int8/int8/int4'"),
    ],
)
def test_errors_of_formats(network, precision, message):
    with pytest.raises(dv.DerivableError, match=message):
        dv.accelerator.design(network, X, pes=64, precision=precision, calibration=SAMPLES)


def test_iterations_of_a_loop_have_one_format():
    layer = torch.nn.Linear(6, 6)

    def steps(x):
        for _ in range(6):
            x = torch.tanh(layer(x))
        return x

    x = torch.rand(2, 6)
    assert dv.accelerator.design(steps, x, pes=16, precision={"neural": "int4", "symbolic": "int8"}).precision
    with pytest.raises(DomainError, match=r"(?s)%linear_\d is int\d and .*in two iterations of a loop"):
        dv.accelerator.design(steps, x, pes=16, precision={"linear_3": "int8", "*": "int4"})


def rounded_by_hand(x, scale, zero, bits):
    least = -(2 ** (bits - 1)) + (zero == 0)
    scale = torch.as_tensor(scale, dtype=torch.float64)
    return (torch.clamp(torch.round(x / scale) + zero, least, 2 ** (bits - 1) - 1) - zero) * scale


@pytest.mark.parametrize("bits", [8, 4])
def test_steps_from_outside_are_those_of_the_hardware(network, bits):
    """Layers that torch rounds in float64 are the hardware's up to the rounding of 16 bits behind the point."""
    network = network.double()
    most = 2 ** (bits - 1) - 1
    weights = network.conv1.weight.detach().abs().amax((1, 2, 3)) / most
    pictures, rows = ((largest / (2 * most + 1), -most - 1) for largest in (1.0, 3.1))
    row_weights = torch.tensor(0.09 / most)
    scales = {"conv1": {"input": pictures, "weight": weights}, "body.0": {"input": rows, "weight": row_weights}}
    with torch.no_grad():
        weight = rounded_by_hand(network.conv1.weight, weights.reshape(-1, 1, 1, 1), 0, bits)
        x = rounded_by_hand(X.double(), *pictures, bits)
        y = network.norm(torch.nn.functional.conv2d(x, weight, network.conv1.bias)).relu().flatten(1)
        layer = network.body[0]
        weight = rounded_by_hand(layer.weight, row_weights, 0, bits)
        # What is added to sums is a whole number of their steps.
        step = rows[0] * row_weights
        y = rounded_by_hand(y, *rows, bits)
        expected = torch.nn.functional.linear(y, weight, torch.round(layer.bias / step) * step)
    front = torch.nn.Sequential()
    front.conv1, front.norm, front.relu, front.flatten = (
        network.conv1,
        network.norm,
        torch.nn.ReLU(),
        torch.nn.Flatten(),
    )
    front.body = torch.nn.Sequential(layer)
    made = dv.accelerator.design(front, X, pes=64, precision=f"int{bits}", scales=scales, calibration=SAMPLES)
    run = made.simulate(X, backend="python")
    np.testing.assert_allclose(run.outputs[0], expected.numpy(), atol=2e-4)
    if shutil.which("iverilog"):
        np.testing.assert_array_equal(made.simulate(X, backend="icarus").outputs[0], run.outputs[0])
    network.float()


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ({"conv": {"input": 1}}, "(?s)scales is of 'conv', which is no layer.*did you mean `conv1`"),
        ({"body.0": {"inputs": 1}}, "(?s)scales of 'body.0' are of 'inputs'.*did you mean `input`"),
        ({"body.0": 3}, "are 3, expected those of operands"),
        ({"body.0": {"input": (0.1, 200)}}, "(?s)zero of the input of 'body.0' is 200.*take 128 from its zero"),
        ({"body.0": {"input": (0.1, 0.5)}}, "expected a whole number of steps"),
        ({"body.0": {"input": -1.0}}, "expected positive numbers"),
        ({"body.0": {"input": "a"}}, r"expected a number, or \(scale, zero\)"),
        ({"body.0": {"weight": [1.0, 2.0]}}, "has 2 scales, expected one, or 8"),
        ({"body.0": {"weight": (0.1, 3)}}, "only what streams through a layer has one"),
        ([1], r"scales is \[1\], expected steps by the names"),
    ],
)
def test_errors_of_steps(network, scales, message):
    with pytest.raises(DomainError, match=message):
        dv.accelerator.design(network, X, pes=64, precision="int8", scales=scales, calibration=SAMPLES)


def test_formats_of_floats_have_no_steps(network):
    with pytest.raises(DomainError, match="its format is fp16"):
        dv.accelerator.design(
            network, X, pes=64, precision="fp16", scales={"conv1": {"input": 1.0}}, calibration=SAMPLES
        )


def test_gradients_of_steps():
    """Those of the paper: of what is rounded the step's is round(x / s) - x / s, of what is cut the last step."""
    x = torch.tensor([-9.0, -1.3, -0.2, 0.4, 0.9, 2.6, 30.0], dtype=torch.float64, requires_grad=True)
    step = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    weights = torch.arange(1.0, 8.0, dtype=torch.float64)
    (rounded(x, step, -7, 7) * weights).sum().backward()
    ratio = (x / step).detach()
    inside = (ratio > -7) & (ratio < 7)
    of_step = torch.where(inside, ratio.round() - ratio, ratio.clamp(-7, 7)) * weights
    assert x.grad is not None
    assert step.grad is not None
    np.testing.assert_allclose(x.grad, torch.where(inside, weights, 0.0))
    np.testing.assert_allclose(step.grad, of_step.sum() / (len(x) * 7) ** 0.5)


def test_learned_steps_are_what_the_hardware_does(network):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3))
    x = torch.randn(64, 6)
    wanted = torch.stack((x[:, 0] * x[:, 1], x[:, 2].abs(), x[:, 3]), 1)
    learned = LearnedSteps(model, [x], {"0": "int8", "*": "int4"})
    before = {name: value.detach().clone() for name, value in learned.named_parameters()}
    optimiser = torch.optim.Adam(learned.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss = ((learned(x) - wanted) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(not torch.equal(value, before[name]) for name, value in learned.named_parameters())
    made = dv.accelerator.design(model, x, pes=64, precision=learned.precision, scales=learned.scales())
    assert made.precision == {"neural": "int4", "symbolic": "int4", "linear_1": "int8"}
    with torch.no_grad():
        expected = learned(x).numpy()
    outputs = made.simulate(x, backend="python").outputs[0]
    # A number that lies between two steps may be rounded the other way; few do.
    differences = np.abs(outputs - expected).max(1)
    assert np.median(differences) < 1e-3
    assert (differences < 1e-3).mean() > 0.9


@pytest.mark.parametrize(
    ("precision", "samples", "message"),
    [
        ({"5": "int8", "*": "int4"}, 1, "precision is of '5', which is no layer"),
        ("fp16", 1, "the format of '0' is fp16"),
        ("int4", 0, "no sample goes through the layer '0'"),
    ],
)
def test_errors_of_learned_steps(precision, samples, message):
    model = torch.nn.Sequential(torch.nn.Linear(6, 3))
    with pytest.raises(DomainError, match=message):
        LearnedSteps(model, itertools.repeat(torch.rand(2, 6), samples), precision)
    with pytest.raises(DomainError, match="has no linear and no conv2d"):
        LearnedSteps(torch.nn.ReLU(), [torch.rand(2)], "int4")


def test_texts_of_formats():
    assert parse_precision("int8/int4") == {"neural": "int8", "symbolic": "int4"}
    assert parse_precision("a.b=int8,*=int4") == {"neural": "int4", "symbolic": "int4", "a.b": "int8"}
