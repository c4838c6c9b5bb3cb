"""Run by test_level_tiles.py in a process of its own, with Triton's interpreter: modules as on CUDA tensors."""

import numpy as np
import torch

import derivable.bridge.torch as bridge
from circuit.decimal_circuits import random_circuit
from derivable.algebra import semirings
from derivable.circuit.fold import tile_fold
from derivable.circuit.fold.engine import GraphFold
from derivable.circuit.fold.fold_rows import fold, fold_vjp
from derivable.circuit.fold.plan import plan_of


def weights_of(name, rng, *shape):
    weights = rng.random(shape) * 0.3 + 0.1
    return np.log(weights) if "log" in name else weights


def given_to(ring, rng, rows, variables, precision, has_negative):
    """Weights, and negative weights, [row, variable] of each component."""
    kinds = {"float": precision, "bool": "bool", "integer": "int64"}
    found = []
    for _ in range(1 + has_negative):
        for carrier in ring.carriers:
            numbers = weights_of(ring.name, rng, rows, variables)
            found.append((numbers > 0.2) if carrier == "bool" else numbers.astype(kinds[carrier]))
    return found


def by_cpu(circuit, ring, operands, seeds):
    """Values of each component, and the adjoints of all floats among the operands."""
    count = len(ring.carriers)
    floats = [k for k, carrier in enumerate(ring.carriers) if carrier == "float"]
    whole = None
    if seeds is not None:
        whole = [np.zeros((len(operands[0]), len(circuit.roots)))] * count
        for k, seed in zip(floats, seeds):
            whole[k] = seed
    negatives = operands[count:] or None
    if not (ring.differentiable and floats):
        return fold(plan_of(circuit, 5), ring, operands[:count], negatives), []
    values, own, others = fold_vjp(plan_of(circuit, 5), ring, operands[:count], negatives, whole)
    return values, [part[k] for part in (own, others) if part is not None for k in floats]


def folded(circuit, name, precision, rows, has_negative, seed=0):
    """Raise unless kernels and CPU agree in values and gradients."""
    ring, rng = semirings.get(name), np.random.default_rng(seed)
    operands = given_to(ring, rng, rows, 5, precision, has_negative)
    seeds = [rng.random((rows, len(circuit.roots))).astype(precision)]
    tiles = tile_fold.TileFold(plan_of(circuit), ring, precision, has_negative)
    found = tiles.values_and_gradient([torch.tensor(x) for x in operands], [torch.tensor(x) for x in seeds])
    for mine, others in zip(found, by_cpu(circuit, ring, operands, seeds), strict=True):
        for one, other in zip(mine, others, strict=True):
            tolerance = 2e-5 if precision == "float32" else 1e-9
            np.testing.assert_allclose(one.numpy(), other, rtol=tolerance, atol=tolerance / 100)
    return tiles


def circuit_of(seed, widest, roots):
    return random_circuit(np.random.default_rng(seed), 5, 8, roots, widest)


def test_modules():
    """As `forward` and autograd call them, as on a device other than the CPU."""
    cases = []
    for name, dtype, roots, batch in (
        ("log", torch.float64, 1, (3,)),
        ("max_product", torch.float32, 2, (2, 2)),
        ("boolean", torch.bool, 2, ()),
    ):
        rows = given_to(semirings.get(name), np.random.default_rng(1), int(np.prod(batch)), 5, str(dtype)[6:], False)
        cases.append((circuit_of(roots, 9, roots).to_torch(name), torch.tensor(rows[0].reshape(*batch, 5))))
    expected = [graded(*case) for case in cases]
    GraphFold.tiles_on = lambda self, device: self._tiles
    bridge.applied = lambda engine, structure, operands, keep: engine.apply_on_device(structure, operands, keep)
    bridge.pulled = lambda engine, structure, seeds, operands, made: engine.elsewhere("torch")[1](
        structure, seeds, operands, made[: engine.num_results]
    )
    torch.testing.assert_close([graded(*case) for case in cases], expected)


def graded(module, weights):
    """The values, and the gradient of the sum of their squares."""
    if not weights.is_floating_point():
        return [module(weights)]
    weights.requires_grad_()
    values = module(weights)
    return [values.detach(), *torch.autograd.grad((values * values).sum(), weights)]


def test_launches_of_one_step():
    """Steps that several programs share, in launches of their own."""
    few, tile_fold._FEW = tile_fold._FEW, 1
    layout, tile_fold.layout_of = tile_fold.layout_of, lambda plan, rows, processors: tile_fold.Layout(2, 16, 4)
    tiles = folded(circuit_of(3, 12, 2), "real", "float32", 3, True)
    (prepared,) = tiles.prepared.values()
    assert len({members for _, (_, members) in prepared.launches}) > 1
    tile_fold._FEW, tile_fold.layout_of = few, layout


def test_batches_in_parts():
    """More rows than what memory is for, the last part with rows that are not there."""
    scratch, tile_fold._SCRATCH = tile_fold._SCRATCH, 1
    tiles = folded(circuit_of(4, 4, 1), "log", "float64", 35, False)
    assert sorted(key[1] for key in tiles.prepared) == [3, 32]
    tile_fold._SCRATCH = scratch


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name)
