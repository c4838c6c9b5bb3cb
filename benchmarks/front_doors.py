"""What one warm call of each front door costs, where the engine behind it has next to nothing to do.

    python benchmarks/front_doors.py [NAME ...] [--rounds N] [--seconds S]

Each row has the microseconds of a call (median and minimum over the rounds), the number of distinct functions of the
library that it goes through, how often they are called, the number of their files, and how often the call comes back
to a file that it has left. The last column is the target. `sys.setprofile` counts the calls, so these numbers depend on
the machine only as far as a kernel is interpreted or compiled.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import harness
import numpy as np

Call = Callable[[], object]


@dataclass(frozen=True)
class Walk:
    """A front door: `make` prepares everything that is warm, and returns the call.

    seconds, functions, calls  what is wanted of a call; None where nothing is
    against  makes the call whose time is wanted instead
    """

    make: Callable[[], Call]
    seconds: float | None = None
    functions: int | None = None
    calls: int | None = None
    against: Callable[[], Call] | None = None

    def wanted(self) -> str:
        parts = [] if self.seconds is None else [harness.duration(self.seconds)]
        parts += [] if self.functions is None else [f"{self.functions:,} functions"]
        parts += [] if self.calls is None else [f"{self.calls:,} calls"]
        return ", ".join(parts)


@dataclass
class Visits:
    """The library's own functions that a call goes through.

    returns  how often a call comes to a file that it has been in before, from another one
    """

    functions: int
    calls: int
    files: int
    returns: int


def visits(call: Call) -> Visits:
    """Count what a call goes through. Comprehensions and lambdas are functions too; C functions are not."""
    import derivable

    root = str(Path(derivable.__file__).parent)
    counts: dict[Any, int] = {}
    entered: list[str] = []

    def see(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            counts[frame.f_code] = counts.get(frame.f_code, 0) + 1
            if not entered or entered[-1] != frame.f_code.co_filename:
                entered.append(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(before)
    files = len(set(entered))
    return Visits(len(counts), sum(counts.values()), files, len(entered) - files)


# Datalog

CLOSURE = """type edge(source: u32, target: u32)
rel path(x, y) = edge(x, y)
rel path(x, z) = path(x, y), edge(y, z)
query path
"""
CHAIN = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


def run_unit() -> Call:
    import derivable as dv

    program = dv.datalog.Program(CLOSURE)
    return lambda: program.run({"edge": CHAIN})


def run_exact() -> Call:
    import derivable as dv

    program = dv.datalog.Program(CLOSURE)
    facts = [(0.5 + 0.05 * k, edge) for k, edge in enumerate(CHAIN)]
    return lambda: program.run({"edge": facts}, "exact")


def run_tagged() -> Call:
    """100 facts, ten chains of ten edges, and so ten rounds."""
    import derivable as dv

    program = dv.datalog.Program(CLOSURE)
    facts = [(0.9, (11 * chain + k, 11 * chain + k + 1)) for chain in range(10) for k in range(10)]
    return lambda: program.run({"edge": facts}, "minmaxprob")


# Tensors


def einsum() -> Call:
    import scipy.sparse

    import derivable as dv

    rng = np.random.default_rng(0)
    matrix = scipy.sparse.random_array((20, 20), density=0.1, format="csr", rng=rng)
    vector = rng.normal(size=20)
    return lambda: dv.tensor.einsum("ij,j->i", matrix, vector)


def _training() -> tuple[Any, Any, Any]:
    """A matrix of 1,800 nonzeros in COO, its values and a vector as parameters of torch."""
    import scipy.sparse
    import torch

    matrix = scipy.sparse.random_array((600, 600), density=0.005, format="csr", rng=np.random.default_rng(0)).tocoo()
    values = torch.from_numpy(matrix.data).requires_grad_()
    weights = torch.full((600,), 0.5, dtype=torch.float64, requires_grad=True)
    return matrix, values, weights


def train_einsum() -> Call:
    """A step of training, forwards and backwards: sum((A x)^2) by the nonzeros of A and by x."""
    import torch

    import derivable as dv

    matrix, values, weights = _training()
    indices = torch.from_numpy(np.stack(matrix.coords).astype(np.int64))

    def step() -> None:
        values.grad = weights.grad = None
        sparse = torch.sparse_coo_tensor(indices, values, matrix.shape, check_invariants=False)
        dv.tensor.einsum("ij,j->i", sparse, weights).square().sum().backward()

    return step


def train_function() -> Call:
    """The same by `Function`."""
    import derivable as dv

    matrix, values, weights = _training()
    text = "sum(<i, r> in A) let y = sum(<j, a> in r) a * X(j) in y * y"
    program = dv.tensor.parse(text, {"A": dv.tensor.matrix, "X": dv.tensor.vector})
    function = dv.tensor.Function(program, patterns={"A": matrix.tocsr()})

    def step() -> None:
        values.grad = weights.grad = None
        function(A=values, X=weights).backward()

    return step


# Accelerators


def design() -> Call:
    import torch

    import derivable as dv

    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, stride=2, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 8 * 8, 4 * 32),
    )
    key, book = dv.vsa.random(4, 32, generator=0), dv.vsa.codebook(10, 4, 32, generator=1)

    class Reader(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, pictures: Any) -> Any:
            codes = self.layers(pictures).unflatten(-1, (4, 32)).softmax(-1)
            return dv.vsa.match_probabilities(dv.vsa.unbind(codes, key), book)

    model, pictures = Reader().eval(), torch.rand(16, 1, 16, 16)
    return lambda: dv.accelerator.design(model, pictures, pes=256, device="u250", calibration=[pictures, pictures])


WALKS = {
    "run, unit, 5 edges": Walk(run_unit, 150e-6, functions=100),
    "run, exact, 5 facts": Walk(run_exact, 500e-6),
    "run, minmaxprob, 100 facts, 10 rounds": Walk(run_tagged, 1e-3),
    "einsum, csr and dense": Walk(einsum, 15e-6),
    "einsum, torch training, 1,800 nonzeros": Walk(train_einsum, against=train_function),
    "model to design": Walk(design, calls=15_000),
}
HEADER = ["walk", "median µs", "minimum µs", "functions", "calls", "files", "returns", "wanted"]


def row_of(name: str, rounds: int, seconds: float) -> list[str]:
    """The line of a walk, timed for `rounds` slices of about `seconds`."""
    walk = WALKS[name]
    contestants = {"walk": walk.make()} | ({} if walk.against is None else {"wanted": walk.against()})
    timing = harness.paired(contestants, rounds=rounds, slice_seconds=seconds)
    seen = visits(contestants["walk"])
    wanted = walk.wanted() if walk.against is None else f"{harness.duration(timing.median('wanted'))}, as `Function`"
    times = [f"{time * 1e6:,.0f}" for time in (timing.median("walk"), timing.best("walk"))]
    counts = [f"{count:,}" for count in (seen.functions, seen.calls, seen.files, seen.returns)]
    return [name, *times, *counts, wanted]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="walks whose names contain one of these; all without")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round")
    options = parser.parse_args(arguments)
    # Threads that wait for one another would be timed, and nothing here is large enough for two.
    harness.use_threads(1)
    chosen = [name for name in WALKS if not options.names or any(part in name for part in options.names)]
    print(harness.machine())
    print(harness.table(HEADER, [row_of(name, options.rounds, options.seconds) for name in chosen]))


if __name__ == "__main__":
    main()
