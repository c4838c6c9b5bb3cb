"""Programs on torch tensors, by kernels and by torch's gathers; run by itself, with Triton's interpreter."""

import warnings

import torch

from derivable.tensor.call import device_folds, device_kernel
from derivable.tensor.call.compilation import compile
from derivable.tensor.language.syntax import parse

PROGRAMS = {
    "vector": ("sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }", {"A": 2, "X": 1}),
    "matrix": ("sum(<i, r> in A) { i -> sum(<j, a> in r) sum(<k, x> in Y(j)) { k -> a * x } }", {"A": 2, "Y": 2}),
    "sparse": ("sum(<i, r> in A) { i -> sum(<j, a> in r) sum(<k, b> in B(j)) { k -> a * b } }", {"A": 2, "B": 2}),
    "number": ("sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in B(j)) a * b", {"A": 2, "B": 2}),
    "twice": ("sum(<i, r> in A) sum(<j, a> in r) { j -> 2.0 * a * (sum(<k, b> in r) b * X(k)) }", {"A": 2, "X": 1}),
    "exp": ("sum(<i, r> in A) { i -> sum(<j, a> in r) exp(a * X(j)) }", {"A": 2, "X": 1}),
    "scaled": ("sum(<i, r> in A) { i -> sum(<j, a> in r) a * C }", {"A": 2, "C": 0}),
    "squares": ("sum(<i, r> in Y) { i -> sum(<j, a> in r) a * a }", {"Y": 2}),
}
IN_TRITON = ["vector", "matrix", "number"]
# Whether programs take kernels now.
IS_ON = [True]


def compare(name, rows, semiring="real", is_graded=True):
    """Raise unless kernels give what torch gives, and two derivatives of it; the number of folds that were kernels."""
    text, inputs = PROGRAMS[name]
    kernel = compile(parse(text, inputs), backend="torch", semiring=semiring)
    generator = torch.Generator().manual_seed(rows)
    shapes = {"A": (rows, rows), "B": (rows, rows), "X": (rows,), "Y": (rows, 5), "C": ()}
    leaves, masks = {}, {}
    for key in inputs:
        leaves[key] = (
            torch.rand(shapes[key], generator=generator, dtype=torch.float64).add(0.1).requires_grad_(is_graded)
        )
        if key in "AB":
            masks[key] = torch.rand(rows, rows, generator=generator) < 2.5 / rows
            masks[key][0] = True
    results, counts = [], []
    for IS_ON[0] in (True, False):
        given = {key: (x * masks[key]).to_sparse_coo() if key in masks else x for key, x in leaves.items()}
        before = len(launched)
        found = kernel(**given)
        found = found.to_dense() if found.layout != torch.strided else found
        parts = [found.detach()]
        if is_graded:
            weights = 1 + torch.arange(found.numel(), dtype=found.dtype).reshape(found.shape)
            by = torch.autograd.grad((found * weights).sum(), list(leaves.values()), create_graph=True)
            parts += [x.detach() for x in by]
            recorded = [x.square().sum() for x in by if x.requires_grad]
            if recorded:
                again = torch.autograd.grad(sum(recorded), list(leaves.values()), materialize_grads=True)
                parts += again
        counts.append(len(launched) - before)
        results.append(parts)
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    assert counts[1] == 0
    return counts[0]


launched: list[str] = []
_plain = device_folds.DeviceFold.__call__


def _counted(fold, operands):
    launched.append(fold.fold.form)
    return _plain(fold, operands)


device_folds.DeviceFold.__call__ = _counted


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    device_kernel.has_kernels = lambda device: IS_ON[0]
    device_folds.FEWEST = 1
    for each in IN_TRITON:
        assert compare(each, 5) > 0
        print(each)
    _right = device_folds._compiled
    device_folds._compiled = lambda kernel, warps: (
        lambda programs, *arguments: (_right(kernel, warps)(programs, *arguments), arguments[-1].mul_(1.5))
    )
    try:
        compare("vector", 5)
    except AssertionError:
        print("and a wrong kernel was noticed")
