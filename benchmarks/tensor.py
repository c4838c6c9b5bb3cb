"""Gradients of sparse tensor programs beside SciPy by hand, dense and sparse PyTorch and JAX's BCOO.

`python benchmarks/tensor.py [--data DIRECTORY] [--rounds 15] [--only smvm] [--limit 2] [--small]`

The six programs of the paper (Shaikhha, Huot and Hashemian, nabla-SD, 2023) with its gradients, by a dense variable,
on matrices of the SuiteSparse collection and on random ones of the sizes and densities of its table 1 and figures 12
to 15.
All contestants are of one thread and one process, in turn, on the same data; every result is compared with SciPy's.
Times are medians in milliseconds after a first call, so that compiling and what is found once for a pattern are not in
them; the column "first" has the first call of ours with kernels in the cache.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

import derivable as dv

M, V, S = dv.tensor.matrix, dv.tensor.vector, dv.tensor.scalar
BETA = 0.5
# Entries of a dense result or operand beyond which dense contestants are left out: 1 GiB of float64.
DENSE = 1 << 27


def gradient(text: str, inputs: dict[str, Any], wrt: str) -> dv.tensor.Program:
    return dv.tensor.optimise(dv.tensor.gradient(dv.tensor.parse(text, inputs), wrt))


BATAX = gradient(
    "sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in r) { j -> beta * a * b * X(k) }", {"A": M, "X": V, "beta": S}, "X"
)
SMMM = gradient("sum(<i, r> in A) sum(<k, a> in r) sum(<j, b> in B(k)) a * b", {"A": M, "B": M}, "B")
SMVM = gradient("sum(<i, r> in A) sum(<j, a> in r) a * X(j)", {"A": M, "X": V}, "X")
VVA = gradient("V1 + V2", {"V1": V, "V2": V}, "V1")
VVD = gradient("sum(<i, a> in V1) a * V2(i)", {"V1": V, "V2": V}, "V1")
VSM = gradient("sum(<i, a> in V) { i -> a * s * s }", {"V": V, "s": S}, "s")


def timed(runs: dict[str, Callable[[], Any]], rounds: int, limit: float) -> dict[str, float | None]:
    """The median of each contestant in milliseconds, all of them in turn; None if its first call takes longer than the
    limit, in seconds. Slow ones run only as often as the limit allows, quick ones many times in each turn, so that what
    the others left in the caches does not count."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    spent, calls = dict.fromkeys(runs, 0.0), dict.fromkeys(runs, 1)
    for turn in range(rounds + 2):
        for name, run in runs.items():
            if spent[name] > limit:
                continue
            start = time.perf_counter()
            for _ in range(calls[name]):
                run()
            took = time.perf_counter() - start
            spent[name] += took
            # The first call may compile, and the second says how many make a turn.
            if turn == 1:
                calls[name] = max(1, min(100, int(0.005 / took)))
            elif turn:
                times[name].append(1e3 * took / calls[name])
    return {name: statistics.median(found) if found else None for name, found in times.items()}


def matrices(directory: Path | None, small: bool) -> Iterator[tuple[str, sp.csr_array]]:
    if directory is not None:
        for name in ("bcspwr10", "nopoly", "bayer10", "SiH4", "bcsstk13"):
            path = directory / "suitesparse" / f"{name}.mtx.gz"
            if path.exists():
                with gzip.open(path) as file:
                    found = sp.csr_array(scipy.io.mmread(file))
                found.data = np.where(found.data == 0, 1.0, found.data).astype(np.float64)
                found.sum_duplicates()
                yield name, found
    shapes = [(1000, 10), (1000, 6), (10_000, 10)] if small else [
        (1000, 10), (1000, 8), (1000, 6), (1000, 4), (4000, 10), (10_000, 10), (36_000, 13), (121_000, 12),
    ]  # fmt: skip
    for size, power in shapes:
        found = sp.random_array(
            (size, size), density=2.0**-power, format="csr", rng=np.random.default_rng(size + power)
        )
        found.sum_duplicates()
        yield f"random {size:,}, 2^-{power}", found


def matrix_cases(name: str, A: sp.csr_array) -> Iterator[tuple[str, dict[str, Callable[[], Any]]]]:
    import torch

    n = A.shape[1]
    ones, x = np.ones(A.shape[0]), np.ones(n)
    is_small = A.shape[0] * n <= DENSE
    dense = torch.from_numpy(A.toarray()) if is_small else None
    sparse = torch.sparse_csr_tensor(A.indptr.astype(np.int64), A.indices.astype(np.int64), A.data, A.shape)
    coo = sparse.to_sparse_coo()

    kernel = dv.tensor.compile(SMVM, {"A": "csr"})

    def by_torch(matrix: Any) -> Any:
        v = torch.ones(n, dtype=torch.float64, requires_grad=True)
        (matrix @ v).sum().backward()
        return v.grad

    runs: dict[str, Callable[[], Any]] = {"derivable": lambda: kernel(A=A), "SciPy by hand": lambda: A.T @ ones}
    if dense is not None:
        runs["torch dense"] = lambda: by_torch(dense)
    runs["torch sparse"] = lambda: by_torch(coo)
    runs |= bcoo(A, lambda m, v: (m @ v).sum())
    yield f"SMVM {name}", runs

    batax = dv.tensor.compile(BATAX, {"A": "csr"})
    runs = {"derivable": lambda: batax(A=A, beta=BETA), "SciPy by hand": lambda: BETA * (A.T @ A)}
    if dense is not None and n <= 4000:
        runs["torch dense"] = lambda: torch.autograd.functional.jacobian(
            lambda v: BETA * (dense.T @ (dense @ v)), torch.ones(n, dtype=torch.float64), vectorize=True
        )
    yield f"BATAx {name}", runs

    if n * n <= DENSE:
        smmm = dv.tensor.compile(SMMM, {"A": "csr"}, output="dense")
        sizes = {"B_size_1": n} if "B_size_1" in SMMM.inputs else {}
        shape = {} if "B_size_0" not in SMMM.inputs else {"B_size_0": n}
        runs = {
            "derivable": lambda: smmm(A=A, **sizes, **shape),
            "SciPy by hand": lambda: np.repeat((A.T @ ones)[:, None], n, 1),
        }
        if dense is not None and n <= 4000:

            def product() -> Any:
                B = torch.ones((n, n), dtype=torch.float64, requires_grad=True)
                (dense @ B).sum().backward()
                return B.grad

            runs["torch dense"] = product
        yield f"SMMM {name}", runs
    del x


def bcoo(A: sp.csr_array, function: Callable) -> dict[str, Callable[[], Any]]:
    import jax
    from jax.experimental import sparse

    jax.config.update("jax_enable_x64", True)
    matrix = sparse.BCOO.from_scipy_sparse(A)
    # The numbers are arguments: of constants XLA computes all before it is called.
    run = jax.jit(jax.grad(lambda v, data: function(sparse.BCOO((data, matrix.indices), shape=A.shape), v)))
    v = jax.numpy.ones(A.shape[1])
    return {"JAX BCOO": lambda: run(v, matrix.data).block_until_ready()}


def vector_cases(size: int, power: int) -> Iterator[tuple[str, dict[str, Callable[[], Any]]]]:
    import torch

    rng = np.random.default_rng(size + power)
    count = max(1, int(size * 2.0**-power))
    places = np.sort(rng.choice(size, count, replace=False))
    values = rng.normal(size=count)
    entries = dv.tensor.hold(dv.tensor.Coordinates((size,), places[None], values), "coo", 1)
    vector = sp.coo_array((values, (places,)), shape=(size,))
    dense = np.zeros(size)
    dense[places] = values
    tensor = torch.from_numpy(dense)
    title = f"{size:,}, 2^-{power}"

    vvd = dv.tensor.compile(VVD, {"V2": "coo"}, output="coordinates")

    def dot() -> Any:
        v = torch.ones(size, dtype=torch.float64, requires_grad=True)
        (v @ tensor).backward()
        return v.grad

    yield (
        f"VVD {title}",
        {
            "derivable": lambda: vvd(V2=entries),
            "SciPy by hand": lambda: vector.copy(),
            "torch dense": dot,
        },
    )

    vsm = dv.tensor.compile(VSM, {"V": "coo"}, output="coordinates")
    yield (
        f"VSM {title}",
        {
            "derivable": lambda: vsm(V=entries, s=3.0),
            "SciPy by hand": lambda: 2 * 3.0 * vector,
            "torch dense": lambda: torch.autograd.functional.jacobian(
                lambda s: tensor * s * s,
                torch.tensor(3.0, dtype=torch.float64),
                strategy="forward-mode",
                vectorize=True,
            ),
        },
    )

    vva = dv.tensor.compile(VVA, output="coordinates")
    yield (
        f"VVA {title}",
        {
            "derivable": lambda: vva(V1_size_0=size),
            "SciPy by hand": lambda: sp.eye_array(size, format="csr"),
            **(
                {
                    "torch dense": lambda: torch.autograd.functional.jacobian(
                        lambda v: v + tensor, torch.ones(size, dtype=torch.float64), vectorize=True
                    )
                }
                if size <= 2000
                else {}
            ),
        },
    )


def agree(case: str, results: dict[str, Any]) -> None:
    ours, hand = results["derivable"], results["SciPy by hand"]
    if isinstance(ours, dv.tensor.Coordinates) and ours.order == 2:
        same = abs(ours.to_scipy("csr") - hand).max() <= 1e-9
    elif isinstance(ours, dv.tensor.Coordinates):
        same = np.array_equal(ours.indices[0], hand.coords[0]) and np.allclose(ours.values, hand.data)
    else:
        same = np.allclose(ours, hand.toarray() if sp.issparse(hand) else hand)
    if not same:
        raise AssertionError(f"{case}: results differ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("DERIVABLE_DATA"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=2.0, help="seconds for all calls of a contestant")
    parser.add_argument("--only", default="")
    parser.add_argument("--small", action="store_true", help="few sizes")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    dv.device.set_num_threads(1)
    others = ("SciPy by hand", "torch dense", "torch sparse", "JAX BCOO")
    print("| gradient | derivable | first | " + " | ".join(others) + " | SciPy / derivable | others / derivable |")
    print("| --- | ---: | ---: | " + "---: | " * len(others) + "---: | ---: |")
    vectors = [(1000, 4), (1_000_000, 4), (1_000_000, 10)] if options.small else [
        (1000, 1), (1000, 6), (1000, 10), (1_000_000, 1), (1_000_000, 6), (1_000_000, 10), (10_000_000, 10),
    ]  # fmt: skip

    def cases() -> Iterator[tuple[str, dict[str, Callable[[], Any]]]]:
        for name, matrix in matrices(options.data and Path(options.data), options.small):
            yield from matrix_cases(f"{name} ({matrix.nnz:,})", matrix)
        for size, power in vectors:
            yield from vector_cases(size, power)

    for case, runs in cases():
        if not case.lower().startswith(options.only.lower()):
            continue
        start = time.perf_counter()
        first = runs["derivable"]()
        first_time = 1e3 * (time.perf_counter() - start)
        agree(case, {"derivable": first, "SciPy by hand": runs["SciPy by hand"]()})
        times = timed(runs, options.rounds, options.limit)
        mine = times.pop("derivable") or float("nan")
        shown = ["" if name not in times else f"{times[name]:.3g}" if times[name] else "over" for name in others]
        ratios = []
        for names in (others[:1], others[1:]):
            found = [time for time in map(times.get, names) if time]
            ratios.append(f"{min(found) / mine:.2f}" if found else "")
        print(f"| {case} | {mine:.3g} | {first_time:.3g} | {' | '.join((*shown, *ratios))} |", flush=True)


if __name__ == "__main__":
    main()
