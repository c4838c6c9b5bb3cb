"""Cases of `gpu.py` that are functions of tensors: folds, sparse tensors and vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from gpu import Case, Walk
from gpu_goals import Bound, Goal

import derivable as dv

Walks = Iterator[Case]


@contextmanager
def as_on_device(device: torch.device) -> Iterator[None]:
    """Have tensors of the CPU go where those of a GPU do, so that Triton's interpreter computes."""
    import derivable.bridge.torch as bridge
    from derivable.circuit.fold.engine import GraphFold

    if device.type != "cpu":
        yield
        return
    applied, pulled, tiles_on = bridge.applied, bridge.pulled, GraphFold.tiles_on
    bridge.applied = lambda engine, structure, operands, keep: engine.apply_on_device(structure, operands, keep)
    bridge.pulled = lambda engine, structure, seeds, operands, made: engine.elsewhere("torch")[1](
        structure, seeds, operands, made[: engine.num_results]
    )
    GraphFold.tiles_on = lambda self, _: self._tiles  # type: ignore[method-assign]
    try:
        yield
    finally:
        bridge.applied, bridge.pulled, GraphFold.tiles_on = applied, pulled, tiles_on


def on_device(call: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    if device.type != "cpu":
        return call

    def interpreted(*operands: Any) -> Any:
        with as_on_device(device):
            return call(*operands)

    return interpreted


def close(rtol: float = 1e-9, atol: float = 1e-9) -> Callable[[Any, Any], None]:
    def check(ours: Any, theirs: Any) -> None:
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(torch.as_tensor(other), torch.as_tensor(mine), rtol=rtol, atol=atol)

    return check


def of_tensors(
    name: str,
    operands: Callable[[], list[torch.Tensor]],
    run: Callable[..., Any],
    note: Callable[[Any], str],
    device: torch.device,
    *,
    others: Mapping[str, Callable[..., Any]] | None = None,
    beside: Mapping[str, Callable[..., Any]] | None = None,
    traffic: Callable[[list[torch.Tensor]], int] | None = None,
    tolerance: float = 2e-3,
    goals: tuple[Goal, ...] = (),
) -> Case:
    """A function of dense and sparse tensors, checked in float64 and in float32 and timed in float32.

    others   other functions of the same tensors on the device, which give the same
    beside   functions whose times are compared with this one's, which give something else
    traffic  bytes that have to be read or written at least, of the tensors in float32
    """

    def listed(found: Any) -> list[torch.Tensor]:
        """On the device, which compares them the sooner."""
        parts = [x.detach() for x in (found if isinstance(found, (tuple, list)) else [found])]
        return [(x.values() if x.layout == torch.sparse_csr else x).to(device) for x in parts]

    def single(x: torch.Tensor) -> torch.Tensor:
        return x.detach().float().requires_grad_(x.requires_grad) if x.is_floating_point() else x

    def make() -> Walk:
        given = operands()
        moved = [x.detach().to(device).requires_grad_(x.requires_grad) for x in given]
        here, there = [single(x) for x in given], [single(x) for x in moved]
        run_there = on_device(run, device)

        def check(ours: Any, theirs: Any) -> None:
            exact = listed(run(*given))
            scales = [float(x.abs().max()) + 1e-30 if x.numel() else 1.0 for x in exact]
            for found, of_type in ((run_there(*moved), 1e-9), (ours, tolerance), (theirs, tolerance)):
                pairs = list(zip(exact, listed(found), scales, strict=True))
                close(of_type, of_type)([(x / s).to(y.dtype) for x, y, s in pairs], [y / s for _, y, s in pairs])

        def checked(other: Callable[..., Any]) -> Callable[[], Any]:
            # Of the values only: torch's gradient of a sparse matrix is dense.
            ours, theirs = listed(run_there(*there))[:1], listed(other(*there))[:1]
            scale = float(ours[0].abs().max()) + 1e-30
            close(tolerance, tolerance)([ours[0] / scale], [theirs[0] / scale])
            return partial(other, *there)

        compared = {key: partial(checked, other) for key, other in (others or {}).items()}
        alone = {key: partial(partial, on_device(other, device), *there) for key, other in (beside or {}).items()}
        return Walk(
            partial(run, *here),
            partial(run_there, *there),
            check,
            note,
            others=compared | alone,
            bound=None if traffic is None else Bound(traffic(there)),
        )

    return Case(name, make, goals)


def with_gradients(run: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """The values, and the gradient of their sum by each tensor that has one."""

    def call(*operands: torch.Tensor) -> Any:
        asked = [x for x in operands if x.requires_grad]
        found = run(*operands)
        return [found, *torch.autograd.grad(found.sum(), asked)]

    return call


ALONE = "value alone"


def overhead(most: float) -> tuple[Goal, ...]:
    return (Goal("derivatives as the thesis's", ALONE, most),)


@cache
def cumsum_of(size: int, device: torch.device) -> Callable[..., Any]:
    """torch.cumsum of as many numbers as other scans have in all."""
    numbers = torch.full((size,), 0.5, device=device)
    return lambda *_: numbers.cumsum(0)


def fold_walks(device: torch.device, is_small: bool) -> Walks:
    large, small, by_index, segmented = (300,) * 4 if is_small else (100_000_000, 1_000_000, 10_000_000, 12_500_000)
    rng = np.random.default_rng(0)
    linear = dv.parallel.operator(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), neutral=(1.0, 0.0))
    products = dv.parallel.matrix_product(2)
    saturated = dv.parallel.operator(lambda a, b: dv.minimum(a + b, 1e5), neutral=0.0)

    def numbers(leaves: int, is_graded: bool, count: int) -> list[torch.Tensor]:
        return [torch.from_numpy(rng.uniform(0.5, 1.0, count)).requires_grad_(is_graded) for _ in range(leaves)]

    def near_one(is_graded: bool, count: int) -> list[torch.Tensor]:
        """Products of many of them stay in range."""
        return [torch.from_numpy(1 + 1e-3 * rng.standard_normal(count)).requires_grad_(is_graded)]

    def turns(is_graded: bool, count: int) -> list[torch.Tensor]:
        """Rotations of the plane, whose products are rotations."""
        angle = rng.uniform(0, 2 * np.pi, count)
        rows = [np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)]
        return [torch.from_numpy(np.stack(rows, -1).reshape(count, 2, 2)).requires_grad_(is_graded)]

    def distinct(is_graded: bool, count: int) -> list[torch.Tensor]:
        """No two are equal, in float32 either: of equal numbers only one has the gradient."""
        found = rng.permutation(1 << 24)[:count] / (1 << 24)
        return [torch.from_numpy(found).requires_grad_(is_graded)]

    def note(count: int) -> Callable[[Any], str]:
        return lambda _: f"{count:,} elements"

    def scan(op: Any) -> Callable[..., Any]:
        return lambda first, *rest: dv.parallel.scan(op, (first, *rest) if rest else first)

    def second(op: Any) -> Callable[..., Any]:
        return lambda *leaves: dv.parallel.scan(op, leaves)[1]

    cumsum = "torch.cumsum of as many numbers"
    add: tuple[Goal, ...] = (Goal("scan of add", "torch", 1.3),)
    any_operator: tuple[Goal, ...] = (Goal("scan of any operator", cumsum, 2.0),)
    # A name, what it computes, its operands by (whether it has gradients, its size), the part of `large` that its size
    # is, the thesis's overhead, other programs and goals.
    scans = [
        ("add", scan("add"), partial(numbers, 1), 1, 1.96, {"torch": lambda x: x.cumsum(0)}, add),
        ("saturated add", scan(saturated), partial(numbers, 1), 1, None, {}, any_operator),
        ("linear functions", second(linear), partial(numbers, 2), 2, 4.0, {}, any_operator),
        ("2 x 2 products", scan(products), turns, 4, 8.9, {}, any_operator),
    ]
    for name, run, make, part, thesis, others, goals in scans:
        sizes = ((large // part, False), (large // part, True), (small // part, False))
        for count, is_graded in sizes[: 2 if is_small else 3]:
            of_size = "" if count == large // part else f", {count:,}"
            beside = {cumsum: cumsum_of(count * part, device)} if goals is any_operator and not is_graded else {}
            wanted = () if of_size else (overhead(thesis) if thesis is not None else ()) if is_graded else goals
            yield of_tensors(
                f"scan, {name}{', with gradient' * is_graded}{of_size}",
                partial(make, is_graded, count),
                with_gradients(run) if is_graded else run,
                note(count),
                device,
                others={key: with_gradients(other) if is_graded else other for key, other in others.items()},
                beside=beside if not is_graded else {ALONE: run},
                traffic=lambda xs, k=3 if is_graded else 1: 2 * k * sum(x.nbytes for x in xs),
                tolerance=1e-2 if count > 10_000_000 else 2e-3,
                goals=wanted,
            )
    # The thesis's, for 31, 1,023 and 1,500,000 buckets.
    thesis_of = {
        "add": (1.0, 0.9, 0.8),
        "mul": (2.6, 2.8, 12.9),
        "max": (2.5, 3.1, 5.1),
        "saturated add": (52.4, 96.7, 33.7),
    }
    for place, buckets in enumerate((31, 1_023, 5_000 if is_small else 1_500_000)):
        for name, overheads in thesis_of.items():
            op, neutral = (
                (saturated, 0.0) if name == "saturated add" else (name, {"add": 0.0, "mul": 1.0, "max": -1.0}[name])
            )

            def fold(x: torch.Tensor, where: torch.Tensor, op=op, neutral=neutral, buckets=buckets) -> torch.Tensor:
                return dv.parallel.reduce_by_index(x.new_full((buckets,), neutral), op, where, x)

            def by_torch(x: torch.Tensor, where: torch.Tensor, buckets: int = buckets) -> torch.Tensor:
                return x.new_zeros(buckets).index_add_(0, where, x)

            def operands(is_graded: bool, name: str = name, buckets: int = buckets) -> list[torch.Tensor]:
                values = {
                    "mul": lambda: near_one(is_graded, by_index),
                    "max": lambda: distinct(is_graded, by_index),
                }.get(name, lambda: numbers(1, is_graded, by_index))()
                return [*values, torch.from_numpy(rng.integers(0, buckets, by_index))]

            for is_graded in (True, False) if name == "add" else (True,):
                yield of_tensors(
                    f"histogram, {name}, {buckets:,} buckets{', with gradient' * is_graded}",
                    partial(operands, is_graded),
                    with_gradients(fold) if is_graded else fold,
                    note(by_index),
                    device,
                    others={"torch": by_torch} if name == "add" and not is_graded else {},
                    beside={ALONE: fold} if is_graded else {},
                    # Values and indices, then adjoints of the values by their indices.
                    traffic=lambda xs, k=2 if is_graded else 1: k * sum(x.nbytes for x in xs),
                    goals=overhead(overheads[place]) if is_graded else (),
                )
    for count in (100,) if is_small else (1_000_000, 1_000):

        def in_segments(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            return dv.parallel.segment_reduce("add", x, offsets)

        def by_torch_in_segments(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            return torch.segment_reduce(x, "sum", offsets=offsets)

        def cut(is_graded: bool, count: int = count) -> list[torch.Tensor]:
            ends = np.sort(rng.integers(0, segmented + 1, count - 1))
            return [*numbers(1, is_graded, segmented), torch.from_numpy(np.r_[0, ends, segmented])]

        for is_graded in (False, True):
            yield of_tensors(
                f"reduction of {count:,} segments{', with gradient' * is_graded}",
                partial(cut, is_graded),
                with_gradients(in_segments) if is_graded else in_segments,
                note(segmented),
                device,
                others={"torch": with_gradients(by_torch_in_segments) if is_graded else by_torch_in_segments},
                beside={ALONE: in_segments} if is_graded else {},
                traffic=lambda xs, k=2 if is_graded else 1: k * xs[0].nbytes + xs[1].nbytes,
            )


def random_matrix(rows: int, each: int, seed: int = 0) -> torch.Tensor:
    """A square matrix in CSR, float64, with at most `each` entries a row at random columns, and a few long rows."""
    rng = np.random.default_rng(seed)
    lengths = rng.poisson(each, rows)
    lengths[:: max(rows // 10, 1)] = min(rows, 100 * each)
    places = np.repeat(np.arange(rows) * rows, lengths) + rng.integers(0, rows, lengths.sum())
    places = np.unique(places)
    offsets = np.searchsorted(places, np.arange(rows + 1) * rows)
    values = torch.from_numpy(rng.uniform(0.5, 1.0, len(places)))
    parts = torch.from_numpy(offsets), torch.from_numpy(places % rows), values
    return torch.sparse_csr_tensor(*parts, (rows, rows), check_invariants=False)


def tensor_walks(device: torch.device, is_small: bool) -> Walks:
    from derivable.tensor.call import device_folds, device_kernel

    def by_torch(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """The gradient is of the nonzeros only, where that of `torch.matmul` is a dense matrix."""
        return torch.sparse.mm(a, x if x.dim() > 1 else x[:, None]).view(-1, *x.shape[1:])

    if is_small and device.type == "cpu":
        # Triton's interpreter is slow, and takes the smallest ones.
        device_kernel.has_kernels, device_folds.FEWEST = lambda _: True, 1  # type: ignore[assignment]
    rng = np.random.default_rng(0)
    vector = "sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }"
    matrix = "sum(<i, r> in A) { i -> sum(<j, a> in r) sum(<k, x> in X(j)) { k -> a * x } }"
    rows, each = ((8, 8), 2) if is_small else ((200_000, 50_000), 20)
    no_slower = (Goal("no slower than torch.sparse", "torch.sparse", 1.0),)
    for (title, text, width), size in zip((("vector", vector, 0), ("64 columns", matrix, 64)), rows):
        program = dv.tensor.parse(text, {"A": 2, "X": 2 if width else 1})
        here = dv.tensor.compile(program, output="torch")
        there = dv.tensor.compile(program, output="torch", backend="torch")

        def product(a: torch.Tensor, x: torch.Tensor, here: Any = here, there: Any = there) -> torch.Tensor:
            return (here if x.is_cpu and not is_small else there)(A=a, X=x)

        for is_graded in (False, True):

            def operands(is_graded: bool = is_graded, size: int = size, width: int = width) -> list[torch.Tensor]:
                x = torch.from_numpy(rng.random((size, width) if width else size)).requires_grad_(is_graded)
                return [random_matrix(size, each).requires_grad_(is_graded), x]

            yield of_tensors(
                f"sparse matrix by {title}{', with gradients' * is_graded}",
                operands,
                with_gradients(product) if is_graded else product,
                lambda found, size=size: f"{size:,} rows, {each} nonzeros each",
                device,
                others={"torch.sparse": with_gradients(by_torch) if is_graded else torch.matmul},
                traffic=lambda xs, k=3 if is_graded else 1: k * sum(map(size_of, (*xs, xs[1]))),
                goals=no_slower,
            )


def size_of(x: torch.Tensor) -> int:
    """In bytes."""
    parts = (x.crow_indices(), x.col_indices(), x.values()) if x.layout == torch.sparse_csr else (x,)
    return sum(part.nbytes for part in parts)


def vector_walks(device: torch.device, is_small: bool) -> Walks:
    rng = np.random.default_rng(0)
    sizes = [(16, 3, 3), (64, 3, 1)] if is_small else [(1_024, 1_000, 1_000), (10_000, 1_000, 1_000)]
    if not is_small:
        sizes += [(length, 65_536, shared) for shared in (1, 65_536) for length in (16, 32, 64, 128)]
        sizes += [(length, 1_024, shared) for shared in (1, 1_024) for length in (16, 64, 256)]
        sizes += [(length, 65_536, 1) for length in (256, 1_024)]
    for length, batch, shared in sizes:

        def operands(length: int = length, batch: int = batch, shared: int = shared) -> list[torch.Tensor]:
            return [torch.from_numpy(rng.normal(size=(count, length))) for count in (batch, shared)]

        paths = {
            path: partial(dv.vsa.convolve, path=path)
            for path in ("fft", "direct")
            if path == "fft" or shared * length <= 1 << 23
        }
        yield of_tensors(
            f"{batch:,} rows of {length:,} places by {'one' if shared == 1 else 'as many'}",
            operands,
            dv.vsa.convolve,
            lambda found: f"{found.numel():,} places",
            device,
            others=paths,
            traffic=lambda xs: 2 * xs[0].nbytes + xs[1].nbytes,
            goals=tuple(Goal("the quicker path", path, 1.1) for path in paths),
        )
