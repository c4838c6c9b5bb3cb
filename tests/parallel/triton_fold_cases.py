"""Run by test_triton_folds.py in a process of its own, with Triton's interpreter: folds of tensors as on a GPU."""

import itertools
import sys

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.algebra.monoids import NAMED
from derivable.bridge import torch as bridge
from derivable.bridge import torch_folds
from derivable.bridge.fold import Fold
from derivable.core.diagnostics import LayoutError, TypeMismatchError, UnsupportedError
from derivable.parallel import grid_scan_kernels as cuts
from parallel import element_oracle as reference
from parallel.operator_cases import BY_NAME, CASES, Case

# Few lanes, programs and tiles, so that small arrays are cut as large ones are.
cuts.FEWEST_LANES, cuts.MOST_LANES, cuts.FEW_TILES = 16, 16, 2
cuts.MANY_COLUMNS = 4
P = dv.parallel


def close(found, expected, tolerance):
    for mine, other in zip(found, expected, strict=True):
        if other is not None:
            np.testing.assert_allclose(mine.numpy().reshape(other.shape), other, rtol=tolerance, atol=tolerance)


def tensors(leaves):
    return [torch.tensor(leaf) for leaf in leaves]


def check(kind, case, rows, columns, structure, buckets=0, seed=0, **options):
    """The fold and its vjp against the reference in NumPy."""
    op = case.typed
    values = list(case.leaves(rows, columns, seed))
    first = list(case.leaves(buckets, columns, seed + 1)) if kind == "reduce_by_index" else []
    by = {"scan": {"offsets": structure, **options}}.get(kind, {})
    given = {"scan": (values,), "segment_reduce": (values, structure), "reduce_by_index": (first, structure, values)}
    results = getattr(reference, kind)(op, *given[kind], **by)
    rng = np.random.default_rng(seed + 2)
    adjoints = [rng.normal(size=leaf.shape).astype(leaf.dtype) if leaf.dtype.kind == "f" else None for leaf in results]
    pulled = getattr(reference, f"{kind}_vjp")(op, adjoints, *given[kind], **by)
    if kind == "reduce_by_index":
        pulled = [*pulled[0], *pulled[1]]
    fold = Fold(kind, op, options.get("exclusive", False), options.get("reverse", False))
    where = None if structure is None else torch.tensor(structure)
    operands = tensors([*first, *values])
    found = torch_folds.apply(fold, where, operands)
    tolerance = 1e-4 if "float32" in op.leaf_dtypes else 1e-9
    close(found, results, tolerance)
    seeds = [torch.tensor(adjoint) for adjoint in adjoints if adjoint is not None]
    close(torch_folds.pull(fold, where, seeds, operands, found), [x for x in pulled if x is not None], tolerance)


def without_zeros(rng, shape):
    return [rng.uniform(-1.5, -0.5, shape)]


OFFSETS = np.array([0, 0, 1, 2, 17, 17, 33, 95, 110])
INDICES = np.random.default_rng(3).integers(-1, 8, 110)


def few():
    """The ways in which kernels differ, once each."""
    linear, saturated = BY_NAME["linear functions"], BY_NAME["saturated add"]
    check("scan", BY_NAME["add"], 55, 1, None)
    check("scan", linear, 110, 1, OFFSETS, exclusive=True, reverse=True)
    check("scan", linear, 50, 5, np.array([0, 7, 7, 50]), exclusive=True)
    check("segment_reduce", BY_NAME["2x2 products"], 40, 1, np.array([0, 40]))
    check("reduce_by_index", saturated, 70, 1, INDICES[:70], buckets=7)
    check("reduce_by_index", saturated, 70, 1, INDICES[:70], buckets=90)
    # A column of a table, and the same index for all rows.
    table = torch.tensor(INDICES).reshape(55, 2)
    for where in (table[:, 0], torch.tensor([3]).expand(55)):
        for op in (BY_NAME["add"].typed, saturated.typed):
            fold, operands = Fold("reduce_by_index", op), [torch.zeros(7).double(), torch.rand(55).double()]
            found, expected = (torch_folds.apply(fold, x, operands) for x in (where, where.clone().contiguous()))
            close(found, [x.numpy() for x in expected], 1e-9)
            seeds = [torch.ones(7).double()]
            pulled = torch_folds.pull(fold, where.clone().contiguous(), seeds, operands, found)
            close(torch_folds.pull(fold, where, seeds, operands, found), [x.numpy() for x in pulled], 1e-9)


def autograd():
    """What users call, on tensors that count as those of a GPU, with derivatives in all modes."""
    bridge.applied = lambda engine, structure, operands, keep: (engine.elsewhere("torch")[0](structure, operands), [])
    bridge.pulled = lambda engine, structure, seeds, operands, made: engine.elsewhere("torch")[1](
        structure, seeds, operands, made[: engine.num_results]
    )
    x = torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def ours(x):
        return P.scan("mul", 1 + x).sin().sum() + P.segment_reduce("mul", x, torch.tensor([0, 0, 9, 20])).sum()

    def theirs(x):
        return torch.cumprod(1 + x, 0).sin().sum() + 1 + x[:9].prod() + x[9:].prod()

    def second(f, x):
        return torch.autograd.grad(torch.autograd.grad(f(x), x, create_graph=True)[0].square().sum(), x)[0]

    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(second(ours, x), second(theirs, x))
    along = torch.linspace(-1, 1, 20, dtype=torch.float64)
    torch.testing.assert_close(*(torch.func.jvp(f, (x,), (along,))[1] for f in (ours, theirs)))


def parameters():
    """Operators that hold tensors, against loops of torch; after `autograd`."""
    w = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    x = torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for of, neutral in (
        (lambda a, b, m: a + b + w * a * b, 0.0),
        (lambda a, b, m: w * m.logaddexp(a / w, b / w), -np.inf),
    ):
        op = P.operator(lambda a, b, of=of: of(a, b, dv), neutral=neutral)

        def prefixes(rows, of=of):
            return list(itertools.accumulate(rows, lambda a, b: of(a, b, torch)))

        expected = torch.stack([*prefixes(x), *prefixes(x[:9]), *prefixes(x[9:]), prefixes(x)[-1]])
        offsets, buckets = torch.tensor([0, 9, 9, 20]), torch.zeros(1, dtype=torch.int64).expand(19)
        found = [P.scan(op, x), P.segmented_scan(op, x, offsets), P.reduce_by_index(x[:1], op, buckets, x[1:])]
        found, seeds = torch.cat(found), torch.linspace(-1, 1, 41, dtype=torch.float64)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(*(torch.autograd.grad(made, (x, w), seeds) for made in (found, expected)))
        total = P.segment_reduce(op, x, offsets)
        assert total[1] == neutral
        torch.testing.assert_close(total[[0, 2]], expected[[28, 39]])
        pulled = (
            torch.autograd.grad(made, (x, w))
            for made in (total[0] + total[2], prefixes(x[:9])[-1] + prefixes(x[9:])[-1])
        )
        torch.testing.assert_close(*pulled)


def all_operators():
    for number, case in enumerate(CASES):
        exclusive, reverse = (bool(number >> bit & 1) for bit in range(2))
        check("scan", case, 110, 1, None, exclusive=exclusive, reverse=reverse)
        check("scan", case, 110, 1, OFFSETS, exclusive=not exclusive, reverse=reverse)


def all_ways():
    for name, columns in itertools.product(("add", "linear functions"), (1, 3, 5)):
        for exclusive, reverse in itertools.product((False, True), repeat=2):
            for offsets in (None, OFFSETS):
                check("scan", BY_NAME[name], 110, columns, offsets, exclusive=exclusive, reverse=reverse)
    for name, columns in itertools.product(("2x2 products", "argmax", "two precisions"), (3, 21)):
        check("scan", BY_NAME[name], 110, columns, OFFSETS, reverse=columns == 3)


def segments():
    for name in ("add", "max with ties", "saturated add", "argmax", "2x2 products"):
        check("segment_reduce", BY_NAME[name], 110, 1, OFFSETS)
        check("segment_reduce", BY_NAME[name], 110, 3, np.array([0, 110]))
    check("segment_reduce", BY_NAME["2x2 products"], 0, 2, np.array([0, 0]))
    check("segment_reduce", BY_NAME["2x2 products"], 0, 2, np.array([0, 0, 0]))


def buckets():
    for name in ("add", "max with ties", "mul with zeros", "saturated add", "add, mul, max", "argmax"):
        check("reduce_by_index", BY_NAME[name], 110, 1, INDICES, buckets=7)
        check("reduce_by_index", BY_NAME[name], 110, 1, INDICES, buckets=60)
    check("reduce_by_index", BY_NAME["mul with zeros"], 110, 3, INDICES, buckets=400)
    # Without zeros products are divided; the reference has prefixes.
    check("reduce_by_index", Case("mul", NAMED["mul"], ("float64",), without_zeros), 110, 3, INDICES, buckets=7)
    # More scalars than registers hold, few enough for copies.
    torch_folds.FEW_BUCKETS = 2
    for name in ("add", "max with ties", "saturated add"):
        check("reduce_by_index", BY_NAME[name], 110, 3, INDICES, buckets=7)
    check("reduce_by_index", BY_NAME["add"], 110, 5, INDICES, buckets=7)
    torch.use_deterministic_algorithms(True)
    check("reduce_by_index", BY_NAME["add"], 110, 3, INDICES, buckets=7)
    torch.use_deterministic_algorithms(False)
    check("reduce_by_index", BY_NAME["mul with zeros"], 0, 3, INDICES[:0], buckets=4)
    check("reduce_by_index", BY_NAME["add"], 110, 3, INDICES, buckets=0)


def types():
    """Arrays of types that kernels compute in wider ones, and limits of integers."""
    rng = np.random.default_rng(5)
    for op, dtype in (("add", "int32"), ("min", "int8"), ("max", "uint8"), ("mul", "int64"), ("or", "bool")):
        values = torch.tensor(rng.integers(0, 2 if dtype == "bool" else 7, (40, 2)), dtype=getattr(torch, dtype))
        monoid = NAMED[op].typed(("bool" if dtype == "bool" else "int64",))
        offsets, indices = torch.tensor([0, 0, 3, 40]), torch.tensor(rng.integers(-1, 5, 40))
        for fold, structure, operands in (
            (Fold("scan", monoid, True, True), offsets, [values]),
            (Fold("segment_reduce", monoid), offsets, [values]),
            (Fold("segment_reduce", monoid), torch.tensor([0, 40]), [values]),
            (Fold("reduce_by_index", monoid), indices, [values[:5], values]),
        ):
            (found,) = torch_folds.apply(fold, structure, operands)
            (expected,) = fold.apply(structure.numpy(), [x.numpy() for x in operands])
            assert found.dtype == values.dtype
            np.testing.assert_array_equal(found.numpy(), expected)


def refusals():
    tanh = dv.parallel.operator(lambda a, b: dv.tanh(a + b), neutral=0.0, name="squashed").typed(("float32",))
    with pytest.raises(UnsupportedError, match="squashed have no kernels on GPUs: triton has no tanh of float32"):
        torch_folds.apply(Fold("scan", tanh), None, [torch.zeros(5)])
    with pytest.raises(TypeMismatchError, match="some of its tensors are on cpu, some on meta"):
        torch_folds.apply(
            Fold("reduce_by_index", NAMED["add"].typed(("float32",))),
            torch.tensor([0]),
            [torch.zeros(3), torch.zeros(1, device="meta")],
        )
    with pytest.raises(LayoutError, match="offsets go from 0 to 4, not from 0 to 5"):
        torch_folds.apply(Fold("scan", NAMED["add"].typed(("float32",))), torch.tensor([0, 4]), [torch.zeros(5)])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
        print(name)
