"""What torch.export makes is designed for as the module that was exported, or refused with what to do instead."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

import derivable as dv
from derivable.accelerator.operators.evaluation import evaluate
from derivable.accelerator.trace.trace import trace

from .networks import MLP, resnet18


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.register_buffer("weight", torch.rand(8))

    def forward(self, x):
        return self.norm(x + self.heads(x, x, x)[0]) * self.weight, x.mean(1)


class Parts(nn.Module):
    def forward(self, x):
        return (
            *(torch.where(x > 0, x, 0.1 * x), x[:, 1:3], x[..., ::2], x[:, [0, 2]], 1 - x, 2**x, x.sum(-1), x.amax(1)),
            *(x.argmax(-1), x.masked_fill(x < 0.5, 0.0), (x**2).sqrt(), x.cumsum(-1), torch.cat([x, x], 1), x.flip(0)),
            *(x.reshape(-1), x.topk(2, -1).values, torch.stack([x, x]), x.permute(1, 0), x.expand(2, 3, 4), x.T @ x),
            *(x.clamp(0, 0.5), F.gelu(x), F.silu(x), x.unsqueeze(1).repeat(1, 2, 1), x.chunk(2, -1)[1], x.var(-1)),
            *(torch.einsum("ij,kj->ik", x, x), x / x.norm(dim=-1, keepdim=True), F.normalize(x, dim=-1), x.std(0)),
            *(
                x.softmax(0),
                x.log_softmax(-1),
                (x > 0.5).float() * x,
                F.pad(x, (1, 1)),
                x + torch.arange(4),
                x.roll(1, 1),
            ),
        )


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.steps, self.layer = nn.Embedding(20, 6), nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, ids):
        return self.layer(self.steps(self.words(ids))[0][:, -1]).sigmoid()


def layers(*made):
    return lambda: copy.deepcopy(nn.Sequential(*made))


MODELS = {
    "MLP": (MLP, (3, 5)),
    "attention": (Attention, (2, 3, 8)),
    "operations": (Parts, (3, 4)),
    "ResNet": (lambda: resnet18(width=4, channels=1), (1, 1, 32, 32)),
    "CNN": (
        layers(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2),
               nn.Dropout(), nn.Flatten(), nn.Linear(16, 4), nn.Softmax(-1)),
        (2, 1, 8, 8),
    ),
    "sequences": (
        layers(nn.Conv1d(2, 3, 3), nn.Sigmoid(), nn.ConvTranspose1d(3, 2, 3), nn.InstanceNorm1d(2), nn.GroupNorm(1, 2)),
        (2, 2, 9),
    ),
    "resizing": (
        layers(nn.Upsample(scale_factor=2), nn.Upsample(size=6, mode="bilinear"), nn.AdaptiveAvgPool2d(2), nn.Mish()),
        (1, 2, 4, 4),
    ),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), (2, 3, 8)),
    "words": (Words, None),
}  # fmt: skip


def agree(exported, model, x):
    found = dv.accelerator.evaluate(trace(exported, x), x.numpy())
    with torch.no_grad():
        wanted = model.double()(x.double() if x.is_floating_point() else x)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other.numpy(), atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_exported_programs(name):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make().eval()
    x = torch.randint(0, 20, (2, 4)) if shape is None else torch.rand(shape)
    exported = torch.export.export(model, (x,))
    agree(exported, model, x)
    agree(exported.module(), model, x)


def test_a_program_for_any_batch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)).eval()
    batch = torch.export.Dim("batch")
    exported = torch.export.export(model, (torch.rand(4, 1, 4, 4),), dynamic_shapes=({0: batch},))
    agree(exported, model, torch.rand(3, 1, 4, 4))


def test_a_design_of_an_exported_program():
    torch.manual_seed(0)
    model, x = MODELS["CNN"][0]().eval(), torch.rand(2, 1, 8, 8)
    exported = torch.export.export(model, (x,))
    options = {"pes": 64, "precision": "int8", "calibration": [x, -x]}
    made, plain = (dv.accelerator.design(each, x, **options) for each in (exported, model))
    run, other = (each.simulate(x, "python") for each in (made, plain))
    assert made.pass_cycles() == plain.pass_cycles()
    np.testing.assert_array_equal(run.outputs[0], other.outputs[0])


def test_what_export_wrote_out_is_refused_with_what_to_do():
    key = dv.vsa.random(2, 8, generator=0)

    class Binding(nn.Module):
        def forward(self, x):
            return dv.vsa.bind(x, key)

    x = torch.rand(1, 2, 8)
    dv.accelerator.design(Binding(), x, pes=16, calibration=[x, x])
    with pytest.raises(dv.DerivableError, match="fft") as caught:
        dv.accelerator.design(torch.export.export(Binding(), (x,)), x, pes=16)
    assert "design with the module itself" in caught.value.hint


class Stepping(nn.Module):
    """A layer in `torch.while_loop`: as often as `times` says, or until the sum is at most 100."""

    def __init__(self, times):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.times = nn.Linear(8, 8), times

    def step(self, y):
        return torch.tanh(self.layer(y)) * 0.5

    def forward(self, x):
        count = torch.zeros((), dtype=torch.int64)
        goes_on = (lambda k, y: k < self.times) if self.times is not None else (lambda k, y: y.sum() > 100)
        return while_loop(goes_on, lambda k, y: (k + 1, self.step(y) + x), (count, x))[1]


class Choosing(Stepping):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.step(x), lambda x: x * 0.5 + 1, (x,))


class Fixed(Stepping):
    """What the hint says in the place of a loop that ends by its numbers."""

    def forward(self, x):
        for _ in range(6):
            x = torch.where(x.sum() > 1, 0.5 * x, x)
        return self.layer(x)


def exported_once(model, x):
    return torch.export.export(model.eval(), (x,))


@pytest.mark.parametrize("times", [0, 1, 9])
def test_a_while_loop_of_which_constants_say_the_steps(times):
    model, x = Stepping(times), torch.rand(2, 8) - 0.5
    expected = x
    for _ in range(times):
        expected = model.step(expected) + x
    exported, expected = exported_once(model, x), expected.detach().numpy()
    found = evaluate(trace(exported, x), x.numpy().astype(np.float64))
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    if times == 9:
        made = dv.accelerator.design(exported, x, pes=16, precision="int8", calibration=[x, -x])
        assert made.lowered.graph.loops, "its steps are a loop of the program"
        np.testing.assert_allclose(made.simulate(x, "python").outputs[0], expected, atol=0.03)


def test_a_while_loop_that_ends_by_its_numbers_is_refused_with_what_to_do():
    x = torch.rand(2, 8)
    with pytest.raises(dv.DerivableError, match="while_loop ends by a tensor that depends on") as caught:
        dv.accelerator.design(exported_once(Stepping(None), x), x, pes=16)
    assert "torch.where(goes_on(state), step(state), state)" in caught.value.hint
    with pytest.raises(dv.DerivableError, match="cannot be traced") as caught:
        dv.accelerator.design(Stepping(None), x, pes=16)
    assert "torch.export.export" in caught.value.hint


def test_a_fixed_number_of_steps_ends_where_the_loop_does():
    model, x = Fixed(0).eval(), torch.rand(2, 8)
    made = dv.accelerator.design(model, x, pes=16, precision="int8", calibration=[x, 0.1 * x])
    assert made.lowered.graph.loops
    for each in (x, 0.1 * x, 0.4 * x):
        ended = each
        while ended.sum() > 1:
            ended = 0.5 * ended
        expected = model.layer(ended).detach().numpy()
        np.testing.assert_allclose(made.simulate(each, "python").outputs[0], expected, atol=0.03)


def test_both_branches_of_a_choice_are_hardware():
    model, x = Choosing(0), torch.rand(2, 8)
    exported = exported_once(model, x)
    made = dv.accelerator.design(exported, x, pes=16, precision="int8", calibration=[x, -x])
    for each in (x, -x, 0.5 * x, -0.5 * x):
        expected = (model.step(each) if each.sum() > 0 else each * 0.5 + 1).detach().numpy()
        found = evaluate(trace(exported, x), each.numpy().astype(np.float64))
        np.testing.assert_allclose(found[0], expected, atol=1e-6)
        np.testing.assert_allclose(made.simulate(each, "python").outputs[0], expected, atol=0.03)
