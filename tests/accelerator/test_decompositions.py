"""Orders, places, volumes and periodic functions: traces mean what torch computes, and the hardware gives it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import derivable as dv
from derivable.accelerator.operators.evaluation import evaluate
from derivable.accelerator.operators.operators import expand
from derivable.accelerator.trace.trace import trace

from .test_trace import agree

F = torch.nn.functional
torch.manual_seed(0)
x, y = torch.randn(2, 3, 4), torch.linspace(0.5, 2, 24).reshape(2, 3, 4)
volume, kernel = torch.randn(2, 2, 5, 6, 4), torch.randn(4, 2, 3, 2, 3)
ROWS, PLACES = torch.tensor([2, 0, 0]), torch.tensor([[[0, 2, 1, 1]], [[2, 2, 0, 1]]])
PICTURE, THETA = torch.randn(2, 2, 5, 4), torch.tensor([[[0.9, -0.4, 0.1], [0.3, 1.1, -0.2]]]).double()
GRID = F.affine_grid(THETA, [1, 2, 3, 4], align_corners=False)
TWO = torch.cat([GRID, GRID.flip(1)])

OPERATIONS = {
    "the largest": lambda x, y: [*x.topk(2), *x.topk(1, 1), *x.flatten(1).topk(2, largest=False), *x.topk(3, 0 - 1)],
    "orders": lambda x, y: [*x.sort(), *x.sort(1, descending=True), x.argsort(0), x.msort(), x.sort().values],
    "middles": lambda x, y: [x.median(), *x.median(1), *x.kthvalue(3, -1, True), x.median(2).indices],
    "ties": lambda x, y: [*torch.sort((2 * x).round(), stable=True), torch.argsort(x > 0, dim=1, stable=True),
                          *(9 * x).long().sort(stable=True)],
    "scattered": lambda x, y: [
        x.index_add(1, ROWS, y, alpha=2), x.scatter_add(1, PLACES, y), torch.zeros(2, 3, 4).scatter_add_(1, PLACES, x),
        x.scatter(1, PLACES, y), x.scatter(1, x.argmax(1, True), 5.0), x.scatter(1, x.argmin(1, True), y),
    ],
    "crosses": lambda x, y: [torch.cross(x, y, 1), torch.linalg.cross(x.mT, y.mT), torch.bucketize(x, y[0, 0]),
                             torch.bucketize(y, y[0, 0], right=True)],
    "neighbours": lambda x, y: [F.local_response_norm(x, 2), F.local_response_norm(x[None], 3, 0.2, 0.5, 2.0)],
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    agree(OPERATIONS[name], x, y)


VOLUMES = {
    "convolutions": lambda v: [
        F.conv3d(v, kernel.double()), F.conv3d(v, kernel.double(), stride=(2, 1, 2), padding=(1, 0, 1)),
        F.conv3d(v, kernel[:, :1].double(), torch.ones(4), dilation=(2, 1, 1), groups=2),
        F.conv3d(v[0], kernel.double()),
        F.conv3d(v, kernel[..., :1, :].double(), padding="same"), F.conv3d(v, kernel.double(), padding="valid"),
    ],
    "pools": lambda v: [
        F.max_pool3d(v, 2), F.max_pool3d(v, 3, 2, 1), F.avg_pool3d(v, (1, 2, 2)), F.avg_pool3d(v, 3, 2, 1),
        F.adaptive_avg_pool3d(v, 1), F.adaptive_max_pool3d(v, (2, 3, 1)), F.max_pool3d(v[0], (2, 1, 1)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", VOLUMES)
def test_volumes(name):
    agree(VOLUMES[name], volume)


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2}], ids=str)
def test_transposed_convolutions_of_volumes(options):
    agree(nn.Sequential(nn.ConvTranspose3d(2, 4, 3, **options)), torch.rand(1, 2, 3, 4, 2))


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("border", ["zeros", "border"])
def test_pictures_are_warped(border, corners):
    options = {"padding_mode": border, "align_corners": corners}
    agree(lambda x: F.grid_sample(x, TWO, **options), PICTURE)
    agree(lambda x: F.grid_sample(x, GRID.expand(2, -1, -1, -1), mode="nearest", **options), PICTURE)
    agree(lambda x, grid: F.grid_sample(x, 1.5 * grid, **options), PICTURE, TWO.float())
    agree(lambda x, t: F.grid_sample(x, F.affine_grid(t, [2, 2, 3, 4], corners), **options), PICTURE, TWO[:, :2, :3, 0])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, grid: F.grid_sample(x, grid, mode="nearest", align_corners=False), "mode 'nearest'"),
        (lambda x, grid: F.grid_sample(x, grid, padding_mode="reflection", align_corners=False), "reflections"),
        (lambda x, grid: x.scatter(1, grid.argmax(1, True)[:, :, :2], 1.0), "some rows"),
        (lambda x, grid: F.max_pool3d(x[:, :, None], 2, ceil_mode=True, padding=1), "these options"),
    ],
)
def test_what_is_refused(function, message):
    with pytest.raises(dv.DerivableError, match=message):
        trace(function, (PICTURE, TWO[:, :, :2].float()))


@pytest.mark.parametrize("name", ["sin", "cos", "erf"])
def test_periodic_functions_are_exact_in_a_graph_and_near_as_hardware_does_them(name):
    function = getattr(torch, name)
    values = torch.linspace(-30, 30, 4001)
    graph = trace(lambda x: function(x), values)
    expected = function(values.double()).numpy()
    np.testing.assert_allclose(evaluate(graph, [values.numpy()])[0], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(evaluate(expand(graph), [values.numpy()])[0], expected, rtol=0, atol=2e-6)


class Turned(nn.Module):
    """Angles, their turned pairs, and what is largest of them."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 8)

    def forward(self, x):
        a = 5 * self.layer(x)
        waves = torch.sin(a) * torch.cos(a) + torch.erf(a)
        values, places = waves.topk(3)
        return torch.sin(a), values, places, waves.sort(descending=True).values


def test_the_hardware_gives_it():
    torch.manual_seed(2)
    model, given = Turned().eval(), torch.randn(4, 6)
    made = dv.accelerator.design(model, given, pes=64, precision="int8")
    run = made.simulate(given, backend="python")
    with torch.no_grad():
        angles = 5 * model.layer(given)
    # A step of int8 is what angles are off by.
    assert np.abs(run.outputs[0] - np.sin(angles.numpy())).max() < 0.15
    np.testing.assert_array_equal(run.outputs[1], run.outputs[3][:, :3])
    assert run.outputs[2].shape == (4, 3)
    values = torch.linspace(-math.tau, math.tau, 64).reshape(8, 8)
    fixed = dv.accelerator.design(lambda x: (x @ torch.eye(8), torch.sin(x), torch.erf(x)), values, pes=64)
    _, waves, errors = fixed.simulate(values, backend="python").outputs
    assert np.abs(waves - np.sin(values.numpy())).max() < 2e-4
    assert np.abs(errors - torch.erf(values).numpy()).max() < 4e-4
