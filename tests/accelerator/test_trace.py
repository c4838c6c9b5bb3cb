"""Traces mean what the models mean in float64; what cannot be traced is an error with its line."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import derivable as dv
import golden_files
from derivable.accelerator.operators.evaluation import evaluate
from derivable.accelerator.operators.operators import check, expand, fold_constants
from derivable.accelerator.trace.trace import trace
from reasoning.abduction import nvsa, prae
from reasoning.learned_rules import lvrf
from reasoning.superposition import mimonet

from .networks import MLP, resnet18

F = torch.nn.functional


def agree(model, *inputs, **options):
    """The graph, after its values were compared with the model's in float64."""
    graph = trace(model, inputs, **options)
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    EYE.data = EYE.double()
    try:
        with torch.no_grad():
            expected = model.double()(*wide) if isinstance(model, nn.Module) else model(*wide)
    finally:
        torch.set_default_dtype(before)
        EYE.data = EYE.float()
    expected = expected if isinstance(expected, (tuple, list)) else [expected]
    for made in (graph, fold_constants(expand(graph))):
        check(made)
        found = evaluate(made, [x.numpy() for x in wide])
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert one.shape == tuple(other.shape)
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-9, atol=1e-9)
    return graph


def with_statistics(model):
    """Batch norms that do something."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return model.eval()


@pytest.mark.parametrize(
    ("build", "shape", "kinds"),
    [
        (lambda: nvsa(blocks=2, length=16), (1, 16, 1, 80, 80), {"bind", "unbind", "match_probability", "bundle"}),
        (prae, (1, 16, 1, 80, 80), {"matmul"}),
        (lambda: lvrf(blocks=2, length=16), (1, 16, 1, 80, 80), {"bind", "unbind", "roll"}),
        (lambda: mimonet(blocks=2, length=16), (1, 2, 1, 80, 80), {"bind", "unbind", "sum"}),
    ],
    ids=["nvsa", "prae", "lvrf", "mimonet"],
)
def test_the_models_of_table_one(build, shape, kinds):
    torch.manual_seed(0)
    graph = agree(with_statistics(build()), torch.rand(*shape))
    found = {operator.kind for operator in graph}
    assert kinds | {"conv2d", "linear", "relu"} <= found
    assert "batch_norm" not in found
    for operator in graph:
        assert operator.unit == "source" or re.search(r"\w+\.py:\d+$", operator.source), operator
        if operator.kind in ("conv2d", "linear"):
            assert operator.part == "neural"
        if operator.kind in ("bind", "unbind", "match_probability"):
            assert operator.part == "symbolic"


def test_resnet18():
    graph = agree(with_statistics(resnet18(width=4)), torch.rand(1, 3, 32, 32))
    assert sum(operator.kind == "conv2d" for operator in graph) == 20
    assert {operator.part for operator in graph} == {"neural"}
    full = trace(resnet18().eval(), torch.rand(1, 3, 32, 32))
    assert sum(graph.work(o).macs for graph in [full] for o in full if o.unit == "gemm") == macs_of(resnet18(), 32)


def macs_of(model, side):
    """Multiplications with an addition, counted by hooks on the layers as they run."""
    total = 0

    def count(layer, inputs, output):
        nonlocal total
        total += output.numel() * layer.weight[0].numel()

    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(count)
    model.eval()(torch.rand(1, 3, side, side))
    return total


def test_printed_form_of_a_model():
    graph = trace(with_statistics(mimonet(blocks=2, length=4)), torch.rand(1, 2, 1, 80, 80))
    golden_files.compare("accelerator/trace", str(graph))


def random_network(draw):
    """Layers, pools, activations, residual sums and block codes, drawn at random; one or two outputs."""
    channels = draw(st.integers(1, 3))
    modules, blocks = [], []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["conv", "norm", "act", "pool", "skip"]))
        if kind == "conv":
            groups = draw(st.sampled_from([1, channels]))
            wide = draw(st.integers(1, 3)) * groups
            size, stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
            padding = draw(st.integers(1, 2)) * dilation
            bias = draw(st.booleans())
            modules.append(nn.Conv2d(channels, wide, size, stride, padding, dilation, groups=groups, bias=bias))
            channels = wide
        elif kind == "norm":
            modules.append(nn.BatchNorm2d(channels))
        elif kind == "act":
            modules.append(draw(st.sampled_from([nn.ReLU(True), nn.Tanh(), nn.Sigmoid(), nn.GELU(), nn.LeakyReLU()])))
        elif kind == "pool":
            pool = draw(st.sampled_from([nn.MaxPool2d(2, 1, 1), nn.AvgPool2d(2, 1), nn.MaxPool2d((1, 2))]))
            modules.append(pool)
        else:
            inner = nn.Conv2d(channels, channels, 3, padding=1)
            blocks.append(len(modules))
            modules.append(inner)
    length, books = draw(st.integers(2, 5)), draw(st.integers(1, 4))
    use = draw(st.sampled_from(["bind", "unbind", "match", "none"]))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(modules)
            self.top = nn.LazyLinear(2 * length)
            self.register_buffer("book", torch.rand(books, 2, length))

        def forward(self, x):
            for number, layer in enumerate(self.layers):
                x = x + layer(x) if number in blocks else layer(x)
            codes = self.top(x.flatten(1)).unflatten(-1, (2, -1)).softmax(-1)
            if use == "bind":
                return dv.vsa.bind(codes.unsqueeze(1), self.book), x.mean((2, 3))
            if use == "unbind":
                return dv.vsa.unbind(codes, self.book[0]).flatten(1).log_softmax(-1)
            if use == "match":
                return dv.vsa.mass_to_vector(dv.vsa.vector_to_mass(codes, self.book), self.book)
            return codes

    return Network(), channels


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_networks(data):
    torch.manual_seed(data.draw(st.integers(0, 99)))
    network, _ = random_network(data.draw)
    first = next((m.in_channels for m in network.layers if isinstance(m, nn.Conv2d)), None)
    if first is None:
        first = next((m.num_features for m in network.layers if isinstance(m, nn.BatchNorm2d)), 2)
    x = torch.randn(2, first, 7, 6)
    with torch.no_grad():
        network(x)
    agree(with_statistics(network), x)


def in_place(x, y):
    """What changes a tensor changes it under all its names."""
    h, y = x * 1, y * 1
    same = h
    h += 1
    h.relu_()
    F.relu(h, inplace=True).mul_(2.0).unsqueeze_(0)
    y.sub_(3)
    return same, h, y


def assignments(x, y):
    x[:, 0] = 0
    x[..., 1:3] = y[..., :2]
    x[0] += 1
    x[1, 2, 3] = y[0, 0, 0]
    x[x > 1.5] = -1.0
    x[:, :, [0, 3]] = 2 * y[:, :, 1:3]
    return x


CAUSAL = torch.ones(3, 3).tril().bool()
EYE = torch.eye(3)
x, y = torch.linspace(-1, 1, 24).reshape(2, 3, 4), torch.linspace(0.5, 2, 24).reshape(2, 3, 4)
NUMBERS, MASK = torch.tensor([2, 0, 0]), torch.tensor([True, False, True, True])
FUNCTIONS = {
    "arithmetic": lambda x, y: (2 * x - y / 4 + 1) / y + (1 - x) - x.sub(y, alpha=2) + x.add(y, alpha=3),
    "functions": lambda x, y: x.exp() + y.log() + torch.tanh(x) + y.sqrt() + x.abs() + torch.sigmoid(x) + y.rsqrt(),
    "powers": lambda x, y: x**2 + x**5 + y**-1 + y**0.5 + y**-2 + x.square() + y.reciprocal() + torch.pow(x, 3),
    "activations": lambda x, y: F.relu(x) + F.silu(x) + F.leaky_relu(x, 0.2) + F.relu6(8 * x) + F.hardtanh(2 * x),
    "more activations": lambda x, y: [F.elu(x, 0.5), F.softplus(x), F.softplus(x, 3.0), F.mish(x), F.softsign(x),
                                      F.hardsigmoid(4 * x), F.hardswish(4 * x), F.prelu(x, y[0, :, 0]),
                                      F.prelu(x[0], y[0, 0])],
    "gelus": lambda x, y: F.gelu(x) + F.gelu(y, approximate="tanh"),
    "clamps": lambda x, y: x.clamp(-0.5, 0.5) + x.clamp(min=0.1) + x.clamp_max(0.3) + x.clip(max=0) + x.clamp(y),
    "negation": lambda x, y: -x + x.neg() + torch.negative(y),
    "extremes": lambda x, y: torch.maximum(x, y) + torch.min(x, y) + x.max() + x.amax(1, True) + x.amin((0, 2), True),
    "extremes with places": lambda x, y: [*x.max(1), *torch.min(y, dim=-1, keepdim=True)],
    "named places": lambda x, y: [x.max(1).values, y.min(2, keepdim=True).indices],
    "places": lambda x, y: [x.argmax(), x.argmax(1), y.argmin(2, keepdim=True)],
    "sums": lambda x, y: [x.sum(), x.sum(1), x.sum((0, -1), keepdim=True), x.mean(), x.mean(-1), y.prod(1), y.prod()],
    "softmax": lambda x, y: [x.softmax(1), torch.log_softmax(x, -1), F.softmax(y, dim=0), x.logsumexp((0, 1))],
    "norms": lambda x, y: [F.layer_norm(x, (4,)), F.layer_norm(x, (3, 4), y[0], y[1], 0.1), F.normalize(x, dim=1)],
    "groups": lambda x, y: [F.group_norm(y.mT, 2, x[0, 0], y[0, 0]), F.group_norm(x, 3, eps=0.1)],
    "matrices": lambda x, y: [x @ y.mT, torch.bmm(x, y.transpose(1, 2)), x[0] @ y[0, 0], y[0, 0] @ x.mT[0],
                              x[0, 0] @ y[1, 1]],
    "addmm": lambda x, y: [torch.addmm(x[0, :, :3], x[0], y[0].T, beta=2, alpha=3), torch.outer(x[0, 0], y[1, 1])],
    "einsum": lambda x, y: [
        torch.einsum("bij,bkj->bik", x, y), torch.einsum("bij,bij->i", x, y), torch.einsum("bij->jb", x),
        torch.einsum("bij,ckl->bc", x, y), torch.einsum("bij,bjk", x, y.mT),
    ],
    "attention": lambda x, y: F.scaled_dot_product_attention(x, y, y),
    "linear": lambda x, y: [F.linear(x, y[0]), F.linear(x, y[0], y[0, :, 0])],
    "shapes": lambda x, y: [x.reshape(6, 4), x.view(-1, 2), x.flatten(1), x.unflatten(2, (2, -1)), x.reshape((4, -1)),
                            x.unsqueeze(1).squeeze(1), x.unsqueeze(-1).squeeze(), x.view_as(y), torch.flatten(x)],
    "orders": lambda x, y: [x.permute(2, 0, 1), x.transpose(0, 2), x.mT, x[0].T, x[0].t(), x.movedim(0, 2)],
    "slices": lambda x, y: [x[0], x[:, 1:], x[..., ::2], x[:, None, -1], x[1, 2, 3], x[:, -2:, 1:3], x.select(1, -1),
                            x.narrow(2, 1, 2)],
    "indices": lambda x, y: [x[:, NUMBERS], x[..., [3, 1]], x.index_select(1, NUMBERS), x[NUMBERS[1:], 1],
                             x[:, :, MASK]],
    "rows": lambda x, y: F.embedding(x.argmax(1), y[0]) + y[0][x.argmax(1)],
    "parts": lambda x, y: [*x.split(2, 2), *x.chunk(2, -1), *x.unbind(1), *x.split([1, 2], 1), *torch.split(y, 1)],
    "together": lambda x, y: [torch.cat((x, y), 1), torch.stack((x, y), -1), torch.cat([x, y, x])],
    "repeated": lambda x, y: [x[:, :1].expand(-1, 5, -1), x.repeat(2, 1, 1, 2), x.repeat_interleave(2, 1),
                              x[0].expand(2, 3, 4), x[0].expand_as(y), torch.broadcast_to(x[:, :1], (2, 2, 4))],
    "turned": lambda x, y: [x.roll(1, 1), x.roll((1, -2), (0, 2)), x.roll(5), x.flip(0, 2), torch.flip(x, (1,))],
    "padded": lambda x, y: [F.pad(x, (1, 2)), F.pad(x, (0, 1, 2, 0), value=3.0)],
    "pools": lambda x, y: [F.max_pool2d(x[None], 2), F.avg_pool2d(x[None], (1, 2), 1),
                           F.adaptive_avg_pool2d(x[None], 1),
                           F.adaptive_avg_pool2d(x[None], (3, 2)), F.adaptive_max_pool2d(x[None], (1, 1)),
                           F.max_pool1d(x, 2), F.max_pool1d(x[0], 3, 1, 1), F.avg_pool1d(x, 2, padding=1),
                           F.max_pool1d(x, 2, stride=1, padding=0, dilation=2), F.avg_pool1d(x, 2, 1, 0, False, False)],
    "masked": lambda x, y: [x.masked_fill(MASK, 3.0), (x * y).masked_fill(~MASK, float("-inf")).softmax(-1)],
    "enlarged": lambda x, y: [F.interpolate(x, scale_factor=2), F.interpolate(x[None], (6, 4), mode="nearest"),
                              F.interpolate(x[None], scale_factor=(1.0, 3.0), mode="nearest-exact")],
    "convolutions": lambda x, y: [F.conv1d(x, y, padding=1), F.conv2d(x[None], y[None, :, :2, :2], padding=(0, 1)),
                                  F.conv2d(x, y[:1, :2, None, :3].transpose(0, 1).transpose(1, 0), padding="valid")],
    "nothing": lambda x, y: F.dropout(x.contiguous().float(), training=False).clone().to(torch.float32) + y.type_as(x),
    "filled": lambda x, y: [x + torch.zeros_like(x) + torch.ones(x.shape[-1]), x * torch.full_like(y, 2), EYE @ x],
    "shapes as numbers": lambda x, y: sum(row * len(x) for row in x) if x.shape[0] > 1 and x.dim() == 3 else y,
    "comparisons": lambda x, y: [x > 0.1, x < y, x >= 0.0, y <= x, x == x.max(1, keepdim=True).values, x != y,
                                 torch.greater(x, y), (x > 0) & (y < 1), (x > 0) | ~(y > 1), (x > 0) ^ (y > 1),
                                 torch.logical_and(x, y > 1), torch.logical_not(x), torch.logical_xor(x, y > 1)],
    "choices": lambda x, y: [torch.where(x > 0, x, y), torch.where(x > y, 1.0, x), x.where(MASK, y),
                             x.masked_fill(x > 0.5, -2.0), (x > 0).float() * y, (x > 0.5).any(1), (x > -2).all(),
                             (x > 0).double().sum(), torch.count_nonzero(x > 0, 1), F.threshold(x, 0.3, -1.0)],
    "roundings": lambda x, y: [torch.floor(3 * x), torch.ceil(3 * x), torch.round(5 * x), torch.trunc(3 * x), x.sign(),
                               torch.frac(3 * x), (3 * x) % 0.7, torch.remainder(x, y), torch.fmod(3 * x, 0.7),
                               (5 * x) // 0.7, torch.div(5 * x, y, rounding_mode="trunc"), (3 * x).int(), x.long(),
                               (x * 6).argmax(1) // 2, torch.heaviside(x, y), x.bool()],
    "composed": lambda x, y: [torch.lerp(x, y, 0.3), torch.addcmul(x, y, y, value=2), torch.addcdiv(x, x, y),
                              torch.fmax(x, y), x.expm1(), y.log1p(), y.log2(), y.exp2(), y.log10(), x.sinh(),
                              x.cosh(), torch.logaddexp(x, y), x.nan_to_num(), y**0.7, 2**x, y**x, x**20],
    "small activations": lambda x, y: [F.logsigmoid(x), F.selu(x), F.celu(x, 0.7), F.tanhshrink(x), F.hardshrink(x),
                                       F.softshrink(x, 0.2), F.glu(x), F.softmin(x, 1)],
    "statistics": lambda x, y: [x.var(), x.var(1), x.std((0, 2), unbiased=False), x.var(-1, correction=0, keepdim=True),
                                *torch.var_mean(x, 1), *torch.std_mean(y, 2), x.norm(), x.norm(dim=1),
                                torch.norm(x, 1, -1), torch.linalg.norm(x, ord=float("inf"), dim=2),
                                torch.linalg.vector_norm(x, dim=1), F.cosine_similarity(x, y, -1),
                                F.pairwise_distance(x, y), torch.cdist(x, y), x.cumsum(1), x.triu(1), x.tril(),
                                torch.diagonal(x, 1, 1, 2)],
    "products of many": lambda x, y: [
        torch.einsum("bij,bkj,cil->bcl", x, y, x), torch.einsum("...j,...j->...", x, y),
        torch.einsum("...ij,kj", x, y[0]), torch.einsum("bi,oij,bj->bo", x[:, :, 0], x.mT[:, :3], x[:, :, 1]),
        torch.tensordot(x, y, dims=([1, 2], [1, 2])), torch.tensordot(x, y.permute(2, 1, 0), 1),
        torch.kron(x[0], y[1]), F.bilinear(x[:, 0], y[:, 1], x[:, :1].mT @ y[:, :1], y[0, 0, :2])],
    "places of others": lambda x, y: [x.gather(1, x.argmax(1, keepdim=True)), x.gather(2, NUMBERS.expand(2, 3, 3)),
                                      F.one_hot(x.argmax(2), 4), EYE[x.argmax(1)],
                                      torch.take_along_dim(y, x.argmax(1, True), 1), x.unfold(2, 2, 1),
                                      F.unfold(x[None], 2, padding=1), F.unfold(y[None], (3, 1), 1, 0, (1, 2)),
                                      x[:, NUMBERS, NUMBERS], x[NUMBERS.clamp(max=1), [0, 1, 2], :2],
                                      F.embedding_bag(x.argmax(1), y[0]), *torch.broadcast_tensors(x, y[0])],
    "assignments": lambda x, y: assignments(x * 1, y),
    "resized": lambda x, y: [F.interpolate(x, size=7), F.interpolate(x, 7, mode="linear"),
                             F.interpolate(x[None], scale_factor=2, mode="bilinear"),
                             F.interpolate(x[None], (5, 9), mode="bilinear", align_corners=True),
                             F.interpolate(x[None], (5, 9), mode="bicubic"),
                             F.interpolate(x[None], (2, 3), mode="area"),
                             F.interpolate(x[None], scale_factor=1.7, mode="bilinear"),
                             F.pixel_shuffle(y.permute(2, 0, 1), 2), F.pixel_unshuffle(x[None, :, :2], 2),
                             F.channel_shuffle(x.permute(0, 2, 1)[None].flatten(0, 1), 2)],
    "paddings": lambda x, y: [F.pad(x, (2, 1), mode="reflect"), F.pad(x[None], (1, 1, 2, 0), mode="replicate"),
                              F.pad(x[None], (1, 2, 0, 1), mode="circular"), F.pad(x, (-1, 2)),
                              F.pad(x, (0, -2, 1, 0))],
    "more pools": lambda x, y: [F.max_pool2d(x[None], 2, ceil_mode=True),
                                F.max_pool2d(x[None], 3, 2, 1, ceil_mode=True),
                                F.avg_pool2d(x[None], 2, ceil_mode=True), F.avg_pool2d(x[None], 2, divisor_override=3),
                                F.avg_pool2d(x[None], 3, 2, 1, True, False), F.adaptive_avg_pool2d(x[None], (2, 3)),
                                F.adaptive_max_pool2d(x[None], (2, 3)), F.adaptive_avg_pool1d(x, 3),
                                F.adaptive_max_pool1d(x, 2), F.adaptive_avg_pool2d(x[None], (None, 2))],
    "more norms": lambda x, y: [F.rms_norm(x, (4,), y[0, 0], 1e-3), F.rms_norm(x, (3, 4)), F.instance_norm(x),
                                F.instance_norm(x[None], weight=y[0, 0, :2], bias=y[0, 1, :2], eps=0.1),
                                F.instance_norm(x, y[0, :, 0], y[1, :, 0], use_input_stats=False)],
    "more attention": lambda x, y: [
        F.scaled_dot_product_attention(x, y, y, is_causal=True), F.scaled_dot_product_attention(x, y, y, CAUSAL),
        F.scaled_dot_product_attention(x, y, y, (x @ y.mT > 0.5) | CAUSAL),
        F.scaled_dot_product_attention(x, y, y, scale=0.3),
        F.scaled_dot_product_attention(x[None].repeat(1, 2, 1, 1), y[None], y[None], enable_gqa=True),
        (x @ y.mT + torch.full((3, 3), float("-inf")).triu(1)).softmax(-1), (x - 1e9 * (x > 0.5)).softmax(-1)],
    "other names": lambda x, y: [
        torch.absolute(x) + torch.multiply(x, y) + torch.minimum(x, y) + torch.subtract(x, y) + torch.rsub(x, y),
        x.div(y) + torch.divide(x, 3) + torch.true_divide(x, y) + x.clamp_min(0.1) + torch.positive(y) + (+x),
        y.float_power(2), F.dropout2d(x[None], training=False), F.alpha_dropout(x, training=False), x.detach().double(),
        x.reshape_as(y), x.swapaxes(0, 1), x.swapdims(0, 2), x.moveaxis(0, 2), torch.concat((x, y)), x.tile(2, 1),
        *x.split_with_sizes([1, 2], 1), torch.concatenate((x, y), dim=1), torch.mm(x[0], y[0].T), x[0, 0].dot(y[0, 0]),
        torch.mv(x[0], y[0, 0]), torch.baddbmm(x[:, :, :3], x, y.mT, beta=2), x.cpu().type(torch.float32),
    ],
    "in place, as statements": lambda x, y: in_place(x, y),
    "in place": lambda x, y: (x * 1).relu_().add_(y).clamp_(min=0.2),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operations(name):
    graph = agree(FUNCTIONS[name], x, y)
    assert len(graph.inputs) == 2


codes = torch.rand(5, 2, 6, dtype=torch.float64)
VECTORS = {
    "block": lambda m: (
        lambda x, y: [
            *(dv.vsa.bind(x, y, model=m), dv.vsa.unbind(x, y, model=m), dv.vsa.inverse(x, model=m)),
            *(dv.vsa.bundle(x, model=m), dv.vsa.bundle(x, y, model=m), dv.vsa.permute(x, 2, model=m)),
            *(dv.vsa.similarity(x, y, model=m), dv.vsa.similarities(x, y, model=m)),
            *(dv.vsa.cleanup(x, y, model=m), dv.vsa.cleanup(x, y, temperature=0.5, model=m)),
            *(dv.vsa.sequence(x, model=m), dv.vsa.element(x, 1, model=m), dv.vsa.ngrams(x, 2, model=m)),
            *(dv.vsa.record(x, y, model=m), dv.vsa.push(x, y, model=m), dv.vsa.pop(x, y, model=m)),
            dv.vsa.tree((x[0], (x[1], x[2])), y[0], y[1], model=m),
            dv.vsa.bundle(x, weights=y.flatten(1)[:, :5], model=m),
        ]
    ),
    "signs": lambda m: (
        lambda x, y: [
            *(dv.vsa.bind(x, y, model=m), dv.vsa.unbind(x, y, model=m), dv.vsa.inverse(x, model=m)),
            *(dv.vsa.bundle(x, model=m), dv.vsa.bundle(x, y, model=m), dv.vsa.permute(x, 2, model=m)),
            *(dv.vsa.normalise(x - 0.5, model=m), dv.vsa.record(x, y, model=m), dv.vsa.cleanup(x, y, model=m)),
            *(dv.vsa.similarity(x, y, model=m), dv.vsa.similarities(x, y, model=m)),
            dv.vsa.bundle(x, weights=y[:, :5], model=m),
        ]
    ),
    "codes": lambda m: (
        lambda x, y: [
            *(dv.vsa.normalise(x), dv.vsa.match_probability(x, y), dv.vsa.match_probabilities(x, y)),
            *(dv.vsa.vector_to_mass(x, y), dv.vsa.vector_to_mass(x, y, temperature=0.3)),
            *(dv.vsa.mass_to_vector(x.flatten(1)[:, :5], y), dv.vsa.convolve(x, y), dv.vsa.correlate(x, y)),
            dv.vsa.bind(x, dv.vsa.power(codes[0], 2)),
        ]
    ),
}


@pytest.mark.parametrize(
    ("name", "model"),
    [("block", "block"), ("block", "hrr"), ("block", "map"), ("codes", "block"), ("signs", "map"), ("signs", "bsc")],
)
def test_operations_of_vectors(name, model):
    shape = (5, 2, 6) if model == "block" else (5, 12)
    a, b = torch.rand(*shape), torch.rand(*shape)
    graph = agree(VECTORS[name](model), a, b)
    assert {operator.part for operator in graph} == {"symbolic"}


def test_inputs_of_many_forms():
    class Model(nn.Module):
        def forward(self, pair, *, scale=2.0, more=None):
            total = pair[0] + pair[1]["b"] * scale
            return {"sum": total if more is None else total + more, "none": None}

    example = {"pair": (np.ones((2, 3), np.float32), {"b": torch.ones(2, 3)}), "more": torch.ones(3)}
    graph = trace(Model(), example)
    assert graph.inputs == ("pair_0", "pair_1", "more")
    assert (evaluate(graph, [np.ones((2, 3)), np.ones((2, 3)), np.ones(3)])[0] == 4).all()

    graph = trace(lambda *xs: torch.stack(xs).sum(0), (torch.ones(2), torch.ones(2), torch.ones(2)))
    assert graph.inputs == ("xs_0", "xs_1", "xs_2")


def test_the_model_stays_as_it_was():
    model = MLP().eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    trace(model, torch.rand(2, 5))
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert next(model.parameters()).dtype == torch.float32 == torch.get_default_dtype()
    assert next(model.parameters()).requires_grad


def test_parameters_keep_their_names_and_dtypes():
    graph = agree(MLP(), torch.rand(2, 5))
    names = [name for name, _ in MLP().named_parameters()]
    assert sorted(graph.constants) == sorted(names)
    assert {str(array.dtype) for array in graph.constants.values()} == {"float32"}
    assert {operator.dtype for operator in graph} == {"float32"}


def test_modules_that_are_symbolic_by_name():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.reader, self.rules = MLP(), nn.Sequential(nn.Softmax(-1), nn.Softmax(-1))

        def forward(self, x):
            return self.rules(self.reader(x)).sum(-1)

    parts = {o.kind: o.part for o in trace(Half(), torch.rand(2, 5), symbolic=["rules"])}
    assert parts["softmax"] == parts["sum"] == "symbolic"
    assert parts["linear"] == parts["relu"] == "neural"
    assert {o.part for o in trace(Half(), torch.rand(2, 5))} == {"neural"}
    with pytest.raises(dv.DerivableError, match="no module 'rule'"):
        trace(Half(), torch.rand(2, 5), symbolic=["rule"])


# Errors: the line that is marked with the name of the case is the one that the report shows.


class Deep(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.inner = nn.ModuleDict({"rules": Rules(function)})

    def forward(self, x):
        return self.inner["rules"](x)


class Rules(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def by_value(x):
    if (x.sum() > 0).all():  # LINE condition
        return x
    return -x


def by_loop(x):
    for _ in range(int(x.argmax())):  # LINE loop
        x = x + 1
    return x


def by_number(x):
    return x * x.max().item()  # LINE number


def by_assignment(x):
    x[x[:, 0, 0].argmax()] = 1  # LINE assignment
    return x


def by_fourier(x):
    return torch.fft.rfft(x).real  # LINE fourier


def by_maxima(x):
    return torch.cummax(x, -1).values  # LINE operation


def by_chance(x):
    return x + torch.rand_like(x)  # LINE random


PHASES = dv.vsa.random(4, model="fhrr", generator=0)


def by_phases(x):
    return dv.vsa.bundle(PHASES.expand(3, 4), weights=x[0, 0, :3], model="fhrr")  # LINE model


def by_power(x):
    return dv.vsa.power(x, 0.5)  # LINE power


def by_search(x):
    return dv.vsa.factorise(x[0], [x]).indices  # LINE factorise


def by_numpy(x):
    return torch.from_numpy(np.abs(x.numpy()))  # LINE numpy


def by_dropout(x):
    return F.dropout(x)  # LINE dropout


def by_mask(x):
    return x[x > 0]  # LINE mask


def by_type(x):
    assert isinstance(x, torch.Tensor), "a tensor is needed"  # LINE type
    return x


def by_alias(x):
    row = x.view(-1)
    row.mul_(2)  # LINE alias
    return x + 1


def by_number_alone(x):
    return x + torch.rand(4)  # LINE chance


ERRORS = {
    "condition": by_value, "loop": by_loop, "number": by_number, "assignment": by_assignment, "operation": by_maxima,
    "random": by_chance, "model": by_phases, "factorise": by_search, "numpy": by_numpy, "dropout": by_dropout,
    "mask": by_mask, "type": by_type, "fourier": by_fourier, "power": by_power,
}  # fmt: skip


def line_of(name):
    lines = Path(__file__).read_text().splitlines()
    return next(k for k, line in enumerate(lines, 1) if line.endswith(f"# LINE {name}"))


@pytest.mark.parametrize("name", ERRORS)
def test_errors_show_the_line_and_the_module(name):
    with pytest.raises(dv.DerivableError) as caught:
        trace(Deep(ERRORS[name]), torch.rand(3, 2, 4))
    error = caught.value
    assert error.source == __file__
    assert error.span.line == line_of(name)
    report = error.report().replace(str(Path(__file__).parent), "tests").replace(f":{error.span.line}:", ":LINE:")
    report = re.sub(r"\n  (\d+) \|", lambda match: f"\n  {'N' * len(match[1])} |", report)
    golden_files.compare(f"accelerator/errors/{name}", report)
    assert "'inner.rules'" in report


@pytest.mark.parametrize(("model", "name"), [(by_alias, "alias"), (by_number_alone, "chance")])
def test_what_a_trace_would_get_wrong_is_an_error(model, name):
    with pytest.raises(dv.DerivableError, match="not what the model gives") as caught:
        trace(model, torch.rand(2, 4))
    assert caught.value.span.line == line_of(name)


def test_an_empty_part_has_its_line():
    with pytest.raises(dv.DerivableError, match=r"(?s)test_trace\.py:\d+: error: %slice_1: .* has no entry"):
        trace(lambda x: torch.cat([x, x[:, 4:]], 1), torch.rand(2, 4))


@pytest.mark.parametrize("first", [False, True])
def test_transformers(first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", batch_first=first, norm_first=first)
    agree(layer.eval(), torch.rand(3, 5, 8))
    agree(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.rand(3, 5, 8))


class Attending(nn.Module):
    def __init__(self, mask=None, **options):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("mask", mask)
        self.inner = nn.MultiheadAttention(8, 2, **options)
        for bias in (self.inner.in_proj_bias, self.inner.out_proj.bias):
            if bias is not None:
                nn.init.normal_(bias)

    def forward(self, query, key):
        return self.inner(query, key, key, attn_mask=self.mask, average_attn_weights=self.mask is None)


@pytest.mark.parametrize("options", [{}, {"kdim": 6, "vdim": 6}, {"bias": False}], ids=str)
def test_attention_of_several_heads(options):
    inner = options.get("kdim", 8)
    for mask, images in (
        (None, 3),
        (None, 0),
        (torch.rand(5, 4), 3),
        (torch.rand(6, 5, 4), 3),
        (torch.rand(2, 5, 4), 0),
    ):
        middle = (images,) if images else ()
        agree(Attending(mask, **options).eval(), torch.rand(5, *middle, 8), torch.rand(4, *middle, inner))
    with pytest.raises(dv.DerivableError, match="further keys"):
        agree(Attending(add_bias_kv=True).eval(), torch.rand(5, 3, 8), torch.rand(4, 3, 8))


@pytest.mark.slow  # to import what transforms them takes seconds
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_modules_that_torch_has_transformed():
    plain = MLP()
    compiled = trace(torch.compile(plain), torch.rand(2, 5))
    assert compiled.operators == trace(plain, torch.rand(2, 5)).operators
    with pytest.raises(dv.DerivableError, match="scripted module hides its operations"):
        trace(torch.jit.script(torch.nn.Linear(5, 2)), torch.rand(2, 5))


@pytest.mark.parametrize(
    "layer", [nn.LPPool2d(3, 2), nn.FractionalMaxPool2d(2, 2), nn.MaxPool2d(2, return_indices=True)]
)
def test_layers_without_an_operator(layer):
    with pytest.raises(dv.DerivableError, match="has no operator"):
        trace(nn.Sequential(layer).eval(), torch.rand(2, 4, 4, 4))


def test_layers_in_training():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    with pytest.raises(dv.DerivableError, match=r"(?s)statistics of its batch.*'1'.*model.eval\(\)"):
        trace(model, torch.rand(2, 1, 5, 5))
    trace(model.eval(), torch.rand(2, 1, 5, 5))


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (3, torch.rand(2), "the model is int, expected"),
        (MLP(), torch.rand(2, 4), "the model fails on the example inputs"),
        (MLP, torch.rand(2, 5), "(?s)the model is a class, MLP.*make a model of it"),
        (MLP(), (torch.rand(2, 5), 3), "not the arguments of the model: too many"),
        (MLP(), {"y": torch.rand(2, 5)}, "(?s)not the arguments of the model.*it takes x"),
        (MLP(), "abc", "without a tensor"),
        (MLP(), torch.rand(0, 5), "without an entry"),
        (lambda x: x, torch.rand(2, dtype=torch.complex64), "complex"),
        (lambda x: x.shape, torch.rand(2), "returns no tensor"),
        (lambda x: (x, 3), torch.rand(2), "output 1 of the model is int"),
    ],
)
def test_arguments(model, inputs, message):
    with pytest.raises(dv.DerivableError, match=message):
        trace(model, inputs)


def test_buffers_with_names_of_operators():
    """What a trace calls its own operators and numbers may be the name of a buffer, too."""

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("relu_1", "scalar_1", "constant_1", "x"):
                self.register_buffer(name, torch.rand(3))

        def forward(self, x):
            return (
                (2.5 * x).relu() * self.scalar_1 + self.relu_1 - torch.tensor([1.0, 2.0, 3.0])
            ) * self.constant_1 + self.x

    torch.manual_seed(0)
    model, x = Named(), torch.randn(2, 3)
    (found,) = evaluate(trace(model, x), x.double().numpy())
    np.testing.assert_allclose(found, model.double()(x.double()).numpy(), atol=1e-12)
