"""Gradients of sparse tensor programs beside SciPy, NumPy and Numba by hand, dense and sparse PyTorch and JAX's BCOO.

`python benchmarks/tensor.py [--data DIRECTORY] [--section matrices|figure-12|...] [--only smvm] [--rounds 9]`

The six programs of the paper (Shaikhha, Huot and Hashemian, nabla-SD, 2023) with its gradients, by a dense variable:

    matrices   of the SuiteSparse collection, and one of very short rows
    table-1    random ones of the sizes and densities of its table 1
    figure-12  matrices over densities; figure-13 over dimensions; figure-14, figure-15 the same of vectors
    figure-16  what each pass costs, and what a program takes without it
    names      programs whose loops look something up that has a name, SMMM by the entries of its variable among them
    steps      of training: a value with all gradients, beside a loop by hand (medians)
    memory     the peak of a call beside what its inputs hold

All contestants are of one thread and one process, in turn, on the same data; every result is compared with the one by
hand. Times are the least processor times of a call in microseconds, which other work on the machine disturbs less than
the clock, after a first call, so that compiling and what is found once for a pattern are not in them; the column
"first" has the first call of ours, in milliseconds.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import scipy.io
import scipy.sparse as sp
from tensor_steps import named, steps

import derivable as dv

M, V, S = dv.tensor.matrix, dv.tensor.vector, dv.tensor.scalar
BETA, SCALAR = 0.5, 3.0
# Entries of a dense operand or result beyond which dense contestants are left out: 1 GiB of float64.
DENSE = 1 << 27
# Products of entries beyond which Jacobians of BATAx are left out: of random matrices they have nearly as many entries,
# and so many take 1.7 GB as coordinates.
PRODUCTS = 70_000_000
BY_HAND = ("SciPy", "Numba", "NumPy")
COLUMNS = (*BY_HAND, "torch dense", "torch sparse", "JAX BCOO")
Runs = dict[str, Callable[[], Any]]
Case = tuple[str, Runs]

TEXTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "BATAx": (
        "sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in r) { j -> beta * a * b * X(k) }",
        {"A": M, "X": V, "beta": S},
        "X",
    ),
    "SMMM": ("sum(<i, r> in A) sum(<k, a> in r) sum(<j, b> in B(k)) a * b", {"A": M, "B": M}, "B"),
    "SMVM": ("sum(<i, r> in A) sum(<j, a> in r) a * X(j)", {"A": M, "X": V}, "X"),
    "VVA": ("V1 + V2", {"V1": V, "V2": V}, "V1"),
    "VVD": ("sum(<i, a> in V1) a * V2(i)", {"V1": V, "V2": V}, "V1"),
    "VSM": ("sum(<i, a> in V) { i -> a * s * s }", {"V": V, "s": S}, "s"),
}


def program(name: str) -> dv.tensor.Program:
    text, inputs, _ = TEXTS[name]
    return dv.tensor.parse(text, inputs)


def gradient(name: str, **options: Any) -> dv.tensor.Program:
    """The derivative of one of the programs; of "BATAx vjp" that by an adjoint."""
    name, _, kind = name.partition(" ")
    return (dv.tensor.vjp if kind else dv.tensor.gradient)(program(name), TEXTS[name][2], **options)


# By hand, in Numba: loops that know nothing of any pattern in between calls.


@numba.njit(cache=True, error_model="numpy")
def column_sums(indices: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    out = np.zeros(size)
    for p in range(len(indices)):
        # A position without sign: a check for counting from the end takes half of the time.
        out[np.uint32(indices[p])] += values[p]
    return out


@numba.njit(cache=True, error_model="numpy")
def normal_product(
    beta: float, offsets: np.ndarray, indices: np.ndarray, values: np.ndarray, x: np.ndarray
) -> np.ndarray:
    out = np.zeros(len(x))
    for i in range(len(offsets) - 1):
        total = 0.0
        for p in range(offsets[i], offsets[i + 1]):
            total += values[p] * x[np.uint32(indices[p])]
        total *= beta
        for p in range(offsets[i], offsets[i + 1]):
            out[np.uint32(indices[p])] += total * values[p]
    return out


@numba.njit(cache=True, error_model="numpy")
def spread_rows(column: np.ndarray, width: int) -> np.ndarray:
    out = np.empty((len(column), width))
    for i in range(len(column)):
        out[i] = column[i]
    return out


@numba.njit(cache=True, error_model="numpy")
def scaled(factor: float, values: np.ndarray) -> np.ndarray:
    out = np.empty(len(values))
    for p in range(len(values)):
        out[p] = factor * values[p]
    return out


@numba.njit(cache=True)
def all_ones(size: int) -> np.ndarray:
    return np.ones(size)


def timed(runs: Runs, rounds: int, limit: float, of: Callable[[list[float]], Any] = min) -> dict[str, float]:
    """The least processor time of each contestant in microseconds, all of them in turn. Slow ones run only as often as
    the limit allows, in seconds, and quick ones many times in each turn, so that what the others left in the caches
    hardly counts."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    spent, calls = dict.fromkeys(runs, 0.0), dict.fromkeys(runs, 1)
    for turn in range(rounds + 3):
        for name, run in runs.items():
            if spent[name] > limit:
                continue
            start = time.process_time()
            for _ in range(calls[name]):
                run()
            took = (time.process_time() - start) / calls[name]
            spent[name] += took * calls[name]
            times[name].append(1e6 * took)
            if turn < 3:
                # The first turns say how many calls make one; the very first one may have touched new memory.
                calls[name] = max(calls[name], min(1000, int(0.02 / max(took, 1e-9))))
    return {name: float(of(found)) for name, found in times.items()}


def random_matrix(rows: int, count: int, columns: int | None = None) -> sp.csr_array:
    """A matrix with so many entries, at random places."""
    columns = rows if columns is None else columns
    rng = np.random.default_rng(rows + count)
    places = np.unique(rng.integers(0, rows * columns, count))
    indices = tuple(index.astype(np.int32) for index in np.unravel_index(places, (rows, columns)))
    return sp.csr_array(sp.coo_array((rng.normal(size=len(places)), indices), (rows, columns)))


def matrices(directory: Path | None) -> Iterator[tuple[str, sp.csr_array]]:
    for name in ("bcspwr10", "nopoly", "bayer10", "SiH4", "bcsstk13") if directory else ():
        path = Path(directory or "") / "suitesparse" / f"{name}.mtx.gz"
        if path.exists():
            with gzip.open(path) as file:
                found = sp.csr_array(scipy.io.mmread(file))
            found.data = np.where(found.data == 0, 1.0, found.data).astype(np.float64)
            found.sum_duplicates()
            yield name, found
    yield "very short rows", random_matrix(36_000, 158_000)


def table_1(small: bool) -> Iterator[tuple[str, sp.csr_array]]:
    for like, size, count in (
        ("pdb1HYS", 36_000, 2_190_000),
        ("rma10", 46_000, 2_370_000),
        ("cant", 62_000, 2_030_000),
        ("consph", 83_000, 3_050_000),
        ("cop20k_A", 121_000, 1_360_000),
    ):
        yield f"as {like}", random_matrix(size // 100 if small else size, count // 1000 if small else count)


def products(A: sp.csr_array) -> int:
    """How many products of two entries of a row there are."""
    return int((np.diff(A.indptr).astype(np.int64) ** 2).sum())


def matrix_cases(name: str, A: sp.csr_array, parts: bool = True) -> Iterator[Case]:
    """parts  also the results that the paper has not: of the vjp of BATAx, and of SMMM in its factors"""
    import torch

    n = A.shape[1]
    ones, x = np.ones(A.shape[0]), np.random.default_rng(0).normal(size=n)
    dense = torch.from_numpy(A.toarray()) if A.shape[0] * n <= DENSE else None
    coo = torch.sparse_csr_tensor(
        A.indptr.astype(np.int64), A.indices.astype(np.int64), A.data, A.shape
    ).to_sparse_coo()  # fmt: skip

    def pulled(matrix: Any) -> Any:
        v = torch.ones(n, dtype=torch.float64, requires_grad=True)
        (matrix @ v).sum().backward()
        return v.grad

    smvm = dv.tensor.compile(gradient("SMVM"), {"A": "csr"})
    runs: Runs = {
        "derivable": lambda: smvm(A=A),
        "SciPy": lambda: A.T @ ones,
        "Numba": lambda: column_sums(A.indices, A.data, n),
        "torch sparse": lambda: pulled(coo),
        **bcoo(A, lambda m, v, _: (m @ v).sum(), x, x),
    }
    if dense is not None:
        runs["torch dense"] = lambda: pulled(dense)
    yield f"SMVM {name}", runs

    if products(A) <= PRODUCTS:
        jacobian = dv.tensor.compile(gradient("BATAx"), {"A": "csr"})
        runs = {"derivable": lambda: jacobian(A=A, beta=BETA), "SciPy": lambda: BETA * (A.T @ A)}
        # Of 4,000 it takes minutes.
        if dense is not None and n < 4000:
            runs["torch dense"] = lambda: torch.autograd.functional.jacobian(
                lambda v: BETA * (dense.T @ (dense @ v)), torch.ones(n, dtype=torch.float64), vectorize=True
            )
        yield f"BATAx {name}", runs

    smmm = dv.tensor.compile(gradient("SMMM"), {"A": "csr"})
    if parts:
        vjp = dv.tensor.compile(gradient("BATAx vjp"), {"A": "csr"})
        weights = torch.from_numpy(x)

        def pulled_twice(matrix: Any) -> Any:
            v = torch.ones(n, dtype=torch.float64, requires_grad=True)
            (BETA * (matrix.T @ (matrix @ v)) @ weights).backward()
            return v.grad

        runs = {
            "derivable": lambda: vjp(A=A, beta=BETA, adjoint=x),
            "SciPy": lambda: BETA * (A.T @ (A @ x)),
            "Numba": lambda: normal_product(BETA, A.indptr, A.indices, A.data, x),
            "torch sparse": lambda: pulled_twice(coo),
            **bcoo(A, lambda m, v, w: BETA * ((m.T @ (m @ v)) @ w), x, x),
        }
        if dense is not None:
            runs["torch dense"] = lambda: pulled_twice(dense)
        yield f"BATAx vjp {name}", runs
        yield (
            f"SMMM, factors {name}",
            {
                "derivable": lambda: smmm(A=A, B_size_1=n),
                "SciPy": lambda: (A.T @ ones, np.ones(n)),
                "Numba": lambda: (column_sums(A.indices, A.data, n), all_ones(n)),
            },
        )

    if n * n <= DENSE:
        whole = dv.tensor.compile(gradient("SMMM"), {"A": "csr"}, output="dense")
        runs = {
            "derivable": lambda: whole(A=A, B_size_1=n),
            "SciPy": lambda: np.repeat((A.T @ ones)[:, None], n, 1),
            "Numba": lambda: spread_rows(column_sums(A.indices, A.data, n), n),
        }
        if dense is not None and n <= 4000:

            def product() -> Any:
                B = torch.ones((n, n), dtype=torch.float64, requires_grad=True)
                (dense @ B).sum().backward()
                return B.grad

            runs["torch dense"] = product
        yield f"SMMM {name}", runs


def bcoo(A: sp.csr_array, function: Callable, x: np.ndarray, w: np.ndarray) -> Runs:
    import jax
    from jax.experimental import sparse

    jax.config.update("jax_enable_x64", True)
    matrix = sparse.BCOO.from_scipy_sparse(A)
    # The numbers are arguments: of constants XLA computes all before it is called.
    run = jax.jit(jax.grad(lambda v, data, w: function(sparse.BCOO((data, matrix.indices), shape=A.shape), v, w)))
    v, w = jax.numpy.asarray(x), jax.numpy.asarray(w)
    return {"JAX BCOO": lambda: run(v, matrix.data, w).block_until_ready()}


def vector_cases(size: int, density: float) -> Iterator[Case]:
    import torch

    rng = np.random.default_rng(size)
    count = max(1, int(size * density))
    places = np.sort(rng.choice(size, count, replace=False))
    values = rng.normal(size=count)
    entries = dv.tensor.hold(dv.tensor.Coordinates((size,), places[None], values), "coo", 1)
    vector = sp.coo_array((values, (places,)), shape=(size,))
    dense = np.zeros(size)
    dense[places] = values
    tensor = torch.from_numpy(dense)
    title = f"{size:,} ({count:,})"

    def dot() -> Any:
        v = torch.ones(size, dtype=torch.float64, requires_grad=True)
        (v @ tensor).backward()
        return v.grad

    vvd = dv.tensor.compile(gradient("VVD"), {"V2": "coo"}, output="coordinates")
    runs: Runs = {
        "derivable": lambda: vvd(V2=entries),
        "SciPy": lambda: vector.copy(),
        "Numba": lambda: (places, scaled(1.0, values)),
        "NumPy": lambda: (places, values.copy()),
        "torch dense": dot,
    }
    yield f"VVD {title}", runs

    vsm = dv.tensor.compile(gradient("VSM"), {"V": "coo"}, output="coordinates")
    runs = {
        "derivable": lambda: vsm(V=entries, s=SCALAR),
        "SciPy": lambda: 2 * SCALAR * vector,
        "Numba": lambda: (places, scaled(2 * SCALAR, values)),
        "NumPy": lambda: (places, 2 * SCALAR * values),
        "torch dense": lambda: torch.autograd.functional.jacobian(
            lambda s: tensor * s * s, torch.tensor(SCALAR, dtype=torch.float64), strategy="forward-mode", vectorize=True
        ),
    }
    yield f"VSM {title}", runs

    vva = dv.tensor.compile(gradient("VVA"), output="coordinates")
    diagonal = np.arange(size)
    runs = {
        "derivable": lambda: vva(V1_size_0=size),
        "SciPy": lambda: sp.eye_array(size, format="csr"),
        "Numba": lambda: (diagonal, all_ones(size)),
        "NumPy": lambda: (diagonal, np.ones(size)),
    }
    if size <= 2000:
        runs["torch dense"] = lambda: torch.autograd.functional.jacobian(
            lambda v: v + tensor, torch.ones(size, dtype=torch.float64), vectorize=True
        )
    yield f"VVA {title}", runs


def is_same(ours: Any, theirs: Any) -> bool:
    """Whether two results are the same tensor, in whatever form they are."""
    if isinstance(ours, tuple):
        return all(map(is_same, ours, theirs))
    if isinstance(ours, dv.tensor.Factored):
        return all(map(np.allclose, (ours.left, ours.right), theirs))
    if sp.issparse(theirs) and theirs.ndim == 2:
        return abs((ours if sp.issparse(ours) else ours.to_scipy("csr")) - theirs).max() <= 1e-9 * max(
            1.0, abs(theirs).max()
        )
    if sp.issparse(theirs):
        theirs = theirs.coords[0], theirs.data
    if isinstance(theirs, tuple):
        places, values = theirs
        return all(np.array_equal(index, places) for index in ours.indices) and np.allclose(ours.values, values)
    dense = ours.to_numpy() if isinstance(ours, dv.tensor.Coordinates) else np.asarray(ours)
    return np.allclose(dense, np.asarray(theirs), atol=1e-9 * max(1.0, abs(dense).max()))


def figure_12(small: bool) -> Iterator[Case]:
    """Matrices of two dimensions over densities."""
    for n, powers in ((1000, (12, 10, 8, 6, 4, 2)), (10_000, (12, 10, 8, 6))):
        for power in powers[:2] if small else powers:
            A = random_matrix(n, int(n * n * 2.0**-power))
            yield from matrix_cases(f"{n:,}, 2^-{power} ({A.nnz:,})", A, parts=False)


def figure_13(small: bool) -> Iterator[Case]:
    """Matrices of two densities over dimensions."""
    for power, sizes in ((10, (500, 1000, 2000, 4000, 8000, 16_000)), (4, (500, 1000, 2000))):
        for n in sizes[:2] if small else sizes:
            A = random_matrix(n, int(n * n * 2.0**-power))
            yield from matrix_cases(f"{n:,}, 2^-{power} ({A.nnz:,})", A, parts=False)


def figure_14(small: bool) -> Iterator[Case]:
    """Vectors of two dimensions over densities."""
    for n in (1000, 1_000_000):
        for power in (10, 1) if small else (12, 10, 8, 6, 4, 2, 0):
            yield from vector_cases(n, 2.0**-power)


def figure_15(small: bool) -> Iterator[Case]:
    """Vectors of two densities over dimensions."""
    for power in (10, 1):
        for n in (10_000,) if small else (1000, 10_000, 100_000, 1_000_000, 10_000_000):
            yield from vector_cases(n, 2.0**-power)


@dataclass
class Report:
    rounds: int
    limit: float
    only: str
    of: Callable[[list[float]], Any] = min

    def cases(self, cases: Iterator[Case]) -> None:
        names = ("derivable", "first (ms)", *COLUMNS, "by hand / derivable", "others / derivable")
        print(f"| gradient | {' | '.join(names)} |")
        print("| --- " + "| ---: " * len(names) + "|")
        for case, runs in cases:
            if case.lower().startswith(self.only.lower()):
                self.row(case, runs)

    def row(self, case: str, runs: Runs) -> None:
        start = time.perf_counter()
        first = runs["derivable"]()
        first_time = 1e3 * (time.perf_counter() - start)
        for name, run in runs.items():
            if name != "derivable" and not is_same(first, run()):
                raise AssertionError(f"{case}: the results of derivable and {name} differ")
        times = timed(runs, self.rounds, self.limit, self.of)
        mine = times.pop("derivable")
        cells = [f"{mine:.3g}", f"{first_time:.3g}"]
        cells += [f"{times[name]:.3g}" if name in times else "" for name in COLUMNS]
        for names in (BY_HAND, COLUMNS[len(BY_HAND) :]):
            found = [times[name] for name in names if name in times]
            cells.append(f"{min(found) / mine:.2f}" if found else "")
        print(f"| {case} | {' | '.join(cells)} |", flush=True)

    def figure_16(self, small: bool) -> None:
        """Each program with one pass off."""
        from derivable.tensor.optimisation.passes import PASSES
        from derivable.tensor.show.explain import effects

        A = random_matrix(1000, 1 << (8 if small else 14))
        given = {
            "BATAx": {"A": A, "beta": BETA},
            "BATAx vjp": {"A": A, "beta": BETA, "adjoint": np.ones(1000)},
            "SMMM": {"A": A, "B_size_1": 1000},
            "SMVM": {"A": A},
            "VVD": {"V2": A[[0]].toarray()[0]},
            "VSM": {"V": A[[0]].toarray()[0], "s": SCALAR},
        }
        print(f"Matrices of 1,000 x 1,000 with {A.nnz:,} entries.\n")
        print("| program, pass | ms | operations | loop cost |")
        print("| --- | ---: | ---: | ---: |")
        for name, values in given.items():
            for effect in effects(dv.tensor.compile(gradient(name)), values):
                sizes, costs = (f"{a:.3g} > {b:.3g}" for a, b in (effect.operations, effect.cost))
                print(f"| {name}, {effect.name} | {1e3 * effect.seconds:.2f} | {sizes} | {costs} |")
        print("\n| without | " + " | ".join(given) + " |")
        print("| --- " + "| ---: " * len(given) + "|")
        expected = {}
        for off in ("", *PASSES, "all of them"):
            switches = {} if not off else dict.fromkeys(PASSES if off == "all of them" else [off], False)
            cells = []
            for name, values in given.items():
                found = gradient(name, passes=switches)
                kernel = dv.tensor.compile(found, passes=switches)
                # Without passes, a program may ask for what the others leave out.
                more = {"X": np.ones(1000), "B": np.ones((1000, 1000)), "V1": np.ones(1000), "V2": np.ones(1000)}
                taken = {**{k: v for k, v in more.items() if k in kernel.program.inputs}, **values}
                result = kernel(**taken)
                dense = result if isinstance(result, np.ndarray) else result.to_numpy()
                if not np.allclose(dense, expected.setdefault(name, dense)):
                    raise AssertionError(f"{name} without {off}: results differ")
                cells.append(f"{timed({'': lambda k=kernel, v=taken: k(**v)}, self.rounds, self.limit)['']:.3g}")
            print(f"| {off or 'nothing'} | {' | '.join(cells)} |", flush=True)

    def memory(self, small: bool) -> None:
        """Peaks of first and later calls beside the arrays of the inputs, in processes of their own (Linux)."""
        import multiprocessing

        print("| gradient | entries | inputs (MB) | first call (MB) | later calls (MB) |")
        print("| --- " + "| ---: " * 4 + "|")
        context = multiprocessing.get_context("spawn")
        for name in ("SMVM", "BATAx vjp", "BATAx", "SMMM"):
            for count in (1 << 14,) if small else (1 << 18, 1 << 19, 1 << 20):
                with context.Pool(1) as pool:
                    inputs, first, later = pool.apply(_peaks, (name, count))
                cells = (f"{count:,}", *(f"{size / 1e6:.1f}" for size in (inputs, first, later)))
                print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _peaks(name: str, count: int) -> tuple[int, int, int]:
    """Bytes: of a matrix with so many entries, about 8 in a row, and by how much calls raise what is resident."""
    dv.device.set_num_threads(1)
    n = count // 8
    kernel = dv.tensor.compile(gradient(name), {"A": "csr"})
    more = {"BATAx": {"beta": BETA}, "BATAx vjp": {"beta": BETA}, "SMMM": {"B_size_1": 1}}.get(name, {})

    def call(A: sp.csr_array) -> Any:
        adjoint = {"adjoint": np.ones(A.shape[1])} if name == "BATAx vjp" else {}
        return kernel(A=A, **more, **adjoint)

    call(random_matrix(100, 800))
    A = random_matrix(n, count)
    # What making the matrix left behind would serve the calls.
    ctypes.CDLL(None).malloc_trim(0)
    before = _resident("VmRSS", reset=True)
    call(A)
    first = _resident("VmHWM") - before
    ctypes.CDLL(None).malloc_trim(0)
    before = _resident("VmRSS", reset=True)
    call(A)
    return A.data.nbytes + A.indices.nbytes + A.indptr.nbytes, first, _resident("VmHWM") - before


def _resident(field: str, reset: bool = False) -> int:
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("DERIVABLE_DATA"))
    parser.add_argument("--section", default="", help="one of the sections; all without it")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--limit", type=float, default=0.5, help="seconds for all calls of a contestant")
    parser.add_argument("--only", default="", help="programs whose names begin so")
    parser.add_argument("--small", action="store_true", help="few sizes")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    dv.device.set_num_threads(1)
    small = options.small
    report = Report(options.rounds, options.limit, options.only)

    def over(given: Iterator[tuple[str, sp.csr_array]]) -> None:
        report.cases(case for name, A in given for case in matrix_cases(f"{name} ({A.nnz:,})", A))

    sections: dict[str, Callable[[], None]] = {
        "matrices": lambda: over(matrices(options.data)),
        "table-1": lambda: over(table_1(small)),
        "figure-12": lambda: report.cases(figure_12(small)),
        "figure-13": lambda: report.cases(figure_13(small)),
        "figure-14": lambda: report.cases(figure_14(small)),
        "figure-15": lambda: report.cases(figure_15(small)),
        "figure-16": lambda: report.figure_16(small),
        "names": lambda: report.cases(
            case for name, A in matrices(options.data) if A.shape[0] == A.shape[1] for case in named(name, A)
        ),
        "steps": lambda: replace(report, of=np.median).cases(steps(small)),
        "memory": lambda: report.memory(small),
    }
    for name, section in sections.items():
        if options.section in ("", name):
            print(f"\n### {name}\n", flush=True)
            section()


if __name__ == "__main__":
    main()
