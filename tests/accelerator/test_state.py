"""What a model keeps between calls is named where a call changes it, and counters that nothing reads are no matter."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import derivable as dv
from derivable.accelerator.trace.trace import trace


class Keeps(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body, self.layer = body, nn.Linear(3, 3)
        self.register_buffer("n", torch.zeros(3))
        self.register_buffer("count", torch.tensor(0))
        self.calls, self.mean, self.last = 0, torch.zeros(3), None

    def forward(self, x):
        return self.layer(x) + self.body(self, x)


def adds(self, x):
    self.n += x.mean(0)  # LINE adds
    return self.n


def assigns(self, x):
    self.n = 0.9 * self.n + x.mean(0)
    return self.n


def averages(self, x):
    return self.n.mul_(0.9).add_(0.1 * x.mean(0))  # LINE averages


def copies(self, x):
    self.n.copy_(x.mean(0))  # LINE copies
    return self.n


def sets(self, x):
    self.n[0] = x.mean()  # LINE sets
    return self.n


def multiplies(self, x):
    self.n *= x.mean(0)  # LINE multiplies
    return self.n


def counts(self, x):
    self.count += 1  # LINE counts
    return self.count


def numbers(self, x):
    self.calls += 1
    return x * self.calls


def means(self, x):
    self.mean = self.mean + x.mean(0)
    return self.mean


def weighs(self, x):
    self.layer.bias.data.copy_(x.mean(0))
    return x


NAMED = {
    adds: "buffer 'n' of the module '1.inner'", assigns: "buffer 'n'", averages: "buffer 'n'", copies: "buffer 'n'",
    sets: "buffer 'n'", multiplies: "buffer 'n'", counts: "buffer 'count'", numbers: "attribute 'calls'",
    means: "attribute 'mean'", weighs: "parameter 'bias' of the module '1.inner.layer'",
}  # fmt: skip


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def inside(body):
    return nn.Sequential(nn.Linear(3, 3), Around(Keeps(body))).eval()


@pytest.mark.parametrize("body", NAMED, ids=lambda body: body.__name__)
def test_what_a_call_changes_is_named(body):
    model = inside(body)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(dv.DerivableError, match=NAMED[body]) as caught:
        dv.accelerator.design(model, torch.rand(2, 3), pes=16)
    error = caught.value
    assert "control flow" not in error.message
    assert "return what it becomes" in error.hint
    lines = Path(__file__).read_text().splitlines()
    line = next((k for k, text in enumerate(lines, 1) if text.endswith(f"# LINE {body.__name__}")), None)
    if line is not None:
        assert (error.source, error.span.line) == (__file__, line)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), "the model is changed"


def adds_to_attribute(self, x):
    self.mean.add_(x.mean(0))  # LINE attribute
    return self.mean


def adds_in_list(self, x):
    self.kept[0].add_(x.mean(0))  # LINE list
    return self.kept[0]


def adds_to_global(self, x):
    GLOBAL.add_(x.mean(0))  # LINE global
    return GLOBAL


GLOBAL = torch.zeros(3)
OUTSIDE = {
    adds_to_attribute: "attribute 'mean'", adds_in_list: "a tensor that was there before",
    adds_to_global: "a tensor that was there before",
}  # fmt: skip


@pytest.mark.parametrize("body", OUTSIDE, ids=lambda body: body.__name__)
def test_tensors_that_are_no_buffers_are_state_too(body):
    """A copy of the model in 64 bits leaves them as they are; the error is at the line that changes one."""
    model = inside(body)
    model[1].inner.kept = [torch.zeros(3)]
    with pytest.raises(dv.DerivableError, match=OUTSIDE[body]) as caught:
        dv.accelerator.design(model, torch.rand(2, 3), pes=16)
    lines = Path(__file__).read_text().splitlines()
    assert f"# LINE {body.__name__.split('_')[-1]}" in lines[caught.value.span.line - 1]
    assert GLOBAL.dtype == torch.float32
    assert not GLOBAL.any()


def test_tensors_that_a_call_makes_are_none():
    """Whatever their type; and one that is there before and that nothing reads is put back."""

    class Makes(nn.Module):
        def forward(self, x):
            GLOBAL.add_(1.0)
            made = torch.zeros(3, dtype=torch.float32)
            made.add_(2.0)
            made[1] += 1.0
            return (x * made) @ torch.eye(3)

    x = torch.rand(2, 3)
    (found,) = dv.accelerator.evaluate(trace(Makes().eval(), x), x.numpy())
    np.testing.assert_allclose(found, x * torch.tensor([2.0, 3.0, 2.0]), rtol=1e-6)
    assert GLOBAL.dtype == torch.float32
    assert not GLOBAL.any()


def unread(self, x):
    self.count += 1
    self.calls += 1
    self.n += x.mean(0)
    return 0.0


def anew(self, x):
    self.last = x.mean(0)
    return self.last


@pytest.mark.parametrize("body", [unread, anew])
def test_what_no_other_call_reads_is_traced(body):
    torch.manual_seed(0)
    model, example, other = Keeps(body).eval().double(), torch.rand(2, 3).double(), torch.rand(2, 3).double()
    graph = trace(model, example)
    for x in (example, other):
        (found,) = dv.accelerator.evaluate(graph, x.numpy())
        np.testing.assert_allclose(found, model(x).detach().numpy(), atol=1e-12)


def test_state_that_is_an_input_is_traced():
    """What the error advises."""
    layer = nn.Linear(3, 3).double()
    x, n = torch.rand(2, 3).double(), torch.rand(3).double()
    graph = trace(lambda x, n: (layer(x) + n, n + x.mean(0)), (x, n))
    found = dv.accelerator.evaluate(graph, [x.numpy(), n.numpy()])
    np.testing.assert_allclose(found[1], (n + x.mean(0)).numpy())


def test_numbers_that_a_model_draws_from_a_seed_are_its_own():
    """Numbers of 64 bits from the same seed would be others than those of 32 bits that the model has."""

    def model(x):
        return x @ torch.randn(4, 4, generator=torch.Generator().manual_seed(3))

    x = torch.rand(2, 4)
    (found,) = dv.accelerator.evaluate(trace(model, x), x.numpy())
    np.testing.assert_allclose(found, model(x).numpy(), atol=1e-6)


HOLDERS = {
    "closure": lambda model: lambda x: model(x) * 2,
    "method": lambda model: model.forward,
    "partial": lambda model: functools.partial(lambda inner, x: inner(x), model),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_state_around_a_function_is_named_and_put_back(holder):
    model = Keeps(adds).eval()
    for _ in range(2):
        with pytest.raises(dv.DerivableError, match="buffer 'n' of the m"):
            dv.accelerator.design(HOLDERS[holder](model), torch.rand(2, 3), pes=16)
        assert not model.n.any()
