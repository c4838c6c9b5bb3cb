"""Tensors of a user's class, whose methods are operations of torch, as torch-hd's are; and what a trace makes of their
Fourier transforms and of the conditions in them. The values to reach are those of the model itself, run by torch."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.fft import fft, ifft

import derivable as dv
from derivable.accelerator.trace.trace import trace
from derivable.core.diagnostics import UnsupportedError


class Coded(torch.Tensor):
    """Operators, properties and methods that are others than torch's of the same name."""

    places = 2

    def bind(self, other):
        return torch.mul(self, other)

    def permute(self, shifts=1):
        return torch.roll(self, shifts, -1)

    def __add__(self, other):
        return torch.clamp(torch.add(self, other), -self.places, self.places)

    @property
    def doubled(self):
        return self.bind(2.0)

    @classmethod
    def of(cls, x):
        return x.as_subclass(cls)


class Shifted(Coded):
    places = 3

    def permute(self, shifts=1):
        return super().permute(shifts + 1)

    def transpose(self, *axes):
        return super().transpose(*axes) * 2.0


class Layered(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.inner = kind, nn.Linear(8, 6)
        self.codes = nn.Parameter(torch.randn(6).as_subclass(kind))
        self.register_buffer("other", torch.randn(6).as_subclass(kind))

    def forward(self, x):
        found = self.kind.of(self.inner(x)).bind(self.codes).permute().doubled + self.other.permute(2)
        assert isinstance(found, self.kind)
        first, second = torch.stack((found, self.codes.bind(found))).unbind(0)
        return first.transpose(0, 1), second.as_subclass(torch.Tensor) + 1.0


def compare(model, *inputs, atol=1e-9):
    """The operators of a model, which give on these inputs what torch gives."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model.double()(*inputs) if isinstance(model, nn.Module) else model(*inputs)
        graph = trace(model, inputs)
    found = dv.accelerator.evaluate(graph, tuple(x.as_subclass(torch.Tensor).numpy() for x in inputs))
    for one, other in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert one.shape == tuple(other.shape)
        assert np.allclose(one, other.as_subclass(torch.Tensor).numpy(), rtol=0, atol=atol)
    return [operator.kind for operator in graph]


@pytest.mark.parametrize("kind", [Coded, Shifted])
def test_methods_operators_and_properties_of_a_class(kind):
    torch.manual_seed(0)
    compare(Layered(kind).eval(), torch.randn(4, 8).double())


def test_what_hypervectors_go_through_is_symbolic():
    graph = trace(Layered(Coded).eval(), torch.randn(4, 8))
    assert {operator.kind: operator.part for operator in graph if operator.kind in ("linear", "roll", "clamp")} == {
        "linear": "neural",
        "roll": "symbolic",
        "clamp": "symbolic",
    }


def test_an_input_of_a_class():
    compare(
        lambda x, y: (x.doubled + y).permute(3), torch.randn(2, 5).double().as_subclass(Coded), torch.ones(5).double()
    )


def test_a_class_is_written_in_place():
    def model(x):
        found = Coded.of(x) * 1.0
        found.mul_(3.0)
        found[0] = 0.0
        return found.permute(1)

    compare(model, torch.randn(3, 4).double())


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs)


@pytest.mark.parametrize(
    ("model", "x", "what"),
    [
        (lambda x: x.as_subclass(Logged) * 2, torch.rand(2, 64), "a tensor of the trace is a Logged"),
        (lambda x: x * 2, torch.rand(2, 64).as_subclass(Logged), "an example input is a Logged"),
    ],
)
def test_a_class_that_decides_what_operations_mean_is_refused(model, x, what):
    with pytest.raises(dv.DerivableError, match=f"{what} of .*, which decides in __torch_function__") as caught:
        trace(model, x)
    assert ".as_subclass(torch.Tensor)" in caught.value.hint


# Conditions on values


def warned(x):
    if (x > 0).any():
        warnings.warn("a number is positive", stacklevel=1)
    return x * 2


def counted(x):
    return x if bool((x > 0).any()) == bool((x < 5).any()) else x * 2


def chosen(x):
    return x * (torch.full((4,), 3.0) if x.sum() > 0 else torch.full((4,), 4.0)).double()


def asserted(x):
    assert (x >= 0).all()
    return x * 2


def test_a_condition_that_changes_no_operation_is_followed():
    assert compare(warned, torch.rand(3, 4).double()).count("mul") == 1


@pytest.mark.parametrize("model", [counted, chosen, asserted])
def test_a_condition_that_changes_one_is_refused(model):
    with pytest.raises(UnsupportedError, match="the truth value of a tensor that depends on the inputs"):
        trace(model, torch.rand(3, 4).double())


# Transforms


CONSTANT = torch.tensor([0.5, -1.0, 2.0, 0.25]).double()


@pytest.mark.parametrize(
    "model",
    [
        lambda x: ifft(fft(x[:, 0]) * fft(x[:, 1])).real,
        lambda x: torch.real(ifft(torch.mul(fft(x[:, 0]), torch.conj(fft(x[:, 1]))))),
        lambda x: ifft(fft(CONSTANT) * fft(x[:, 0]) * 2 + fft(x[:, 1])).real,
        lambda x: ifft(fft(x[:, 0]).conj() * fft(x[:, 1]) - fft(x[:, 2])).real,
    ],
)
def test_products_of_transforms_are_bindings(model):
    assert "bind" in compare(model, torch.randn(2, 3, 4).double())


@pytest.mark.parametrize(
    "model",
    [
        lambda x: fft(x).abs(),
        lambda x: fft(x).imag,
        lambda x: fft(x),
        lambda x: fft(x) * x,
        lambda x: ifft(1 / fft(x)).real,
        lambda x: ifft(fft(x) * torch.complex(CONSTANT, CONSTANT)).real,
        lambda x: ifft(fft(x, dim=1)).real,
    ],
)
def test_other_complex_numbers_are_refused(model):
    with pytest.raises(UnsupportedError, match=r"complex numbers|another axis"):
        trace(model, torch.randn(2, 3, 4).double())


# torch-hd


def classifier(torchhd, vsa, hidden=64):
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions = torchhd.embeddings.Random(9, hidden, vsa)
            self.levels = torchhd.embeddings.Level(8, hidden, vsa)
            self.classes = torchhd.models.Centroid(hidden, 4)
            self.classes.weight.data.normal_()

        def forward(self, x):
            found = torchhd.normalize(torchhd.hash_table(self.positions.weight, self.levels(x)))
            if vsa == "MAP":
                return self.classes(found)
            return torchhd.cosine_similarity(found, torchhd.ensure_vsa_tensor(self.classes.weight, vsa=vsa))

    return Classifier()


def projected(torchhd, vsa, hidden=64):
    class Projected(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torchhd.embeddings.Projection(9, hidden, vsa)
            self.keys = torchhd.embeddings.Random(3, hidden, vsa)

        def forward(self, x):
            keys = self.keys.weight
            record = torchhd.bundle(torchhd.bind(self.inner(x), keys[0]), torchhd.permute(keys[1], shifts=2))
            return torchhd.dot_similarity(torchhd.bind(record, torchhd.inverse(keys[0])), keys)

    return Projected()


def grams(torchhd, vsa, hidden=64):
    class Grams(nn.Module):
        def __init__(self):
            super().__init__()
            self.letters = torchhd.embeddings.Random(9, hidden, vsa)

        def forward(self, x):
            letters = self.letters((x * 8).round().long())
            return torchhd.cosine_similarity(torchhd.ngrams(letters, 3), torchhd.bundle_sequence(letters))

    return Grams()


@pytest.mark.parametrize("vsa", ["MAP", "HRR"])
@pytest.mark.parametrize("make", [classifier, projected, grams])
def test_models_of_torch_hd(make, vsa):
    torchhd = pytest.importorskip("torchhd")
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        kinds = compare(make(torchhd, vsa), torch.rand(3, 9).double(), atol=1e-6)
    finally:
        torch.set_default_dtype(before)
    assert vsa == "MAP" or "bind" in kinds


def test_a_model_of_torch_hd_on_its_hardware():
    torchhd = pytest.importorskip("torchhd")
    torch.manual_seed(0)
    model, x, other = classifier(torchhd, "MAP"), torch.rand(3, 9), torch.rand(3, 9)
    made = dv.accelerator.design(model, x, pes=16, precision="int8", calibration=[x, other])
    found, expected = (
        made.simulate(x, "python").outputs[0],
        model(x).double().detach().as_subclass(torch.Tensor).numpy(),
    )
    assert np.abs(found - expected).max() <= 0.02
    assert found.argmax(1).tolist() == expected.argmax(1).tolist()


def test_phases_of_torch_hd_are_refused():
    torchhd = pytest.importorskip("torchhd")
    with pytest.raises(UnsupportedError, match="complex numbers") as caught:
        trace(grams(torchhd, "FHRR"), torch.rand(3, 9))
    assert "HRR in the place of FHRR" in caught.value.hint
