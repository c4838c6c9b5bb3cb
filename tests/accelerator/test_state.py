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
