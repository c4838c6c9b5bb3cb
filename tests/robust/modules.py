"""What a network may hold: for each object a module that calls it, and inputs for it. A new object is one row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import derivable as dv

PATHS = "rel path(a, b) = edge(a, b) or (path(a, c), edge(c, b))\nrel near(a) = edge(a, b), not off(b)"
EDGES = [(0, 1), (1, 2), (0, 2), (2, 0)]
CLAUSES = [[1, 2], [-2, 3, -4], [-1, 4]]


class Calls(torch.nn.Module):
    """A linear layer, and a function behind it, so that gradients go through both."""

    def __init__(self, function: Callable[..., Any], size: int, last: Callable[[Any], Any] = torch.sigmoid):
        super().__init__()
        self.linear = torch.nn.Linear(size, size, dtype=torch.float64)
        self.function, self.last = function, last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.last(self.linear(x)))


def _saturated(a, b):
    return dv.minimum(a + b, 2.5)


def _affine(f, g):
    return f[0] * g[0], g[0] * f[1] + g[1]


SATURATED = dv.parallel.operator(_saturated, neutral=0.0, name="saturated")
AFFINE = dv.parallel.operator(_affine, neutral=(1.0, 0.0), name="affine")
INDEX = torch.tensor([0, 2, 1, 2])
PATTERN = {0: {1: 1.0}, 1: {0: 2.0}, 2: {2: -1.0}, 3: {3: 0.5}}


class Scan(torch.nn.Module):
    def forward(self, x):
        return dv.parallel.scan(SATURATED, x)


class Affine(torch.nn.Module):
    def forward(self, x):
        return dv.parallel.scan(AFFINE, (x, x + 1), reverse=True)[1]


class ByIndex(torch.nn.Module):
    def forward(self, x):
        return dv.parallel.reduce_by_index(torch.zeros(3, *x.shape[1:], dtype=x.dtype), "max", INDEX, x)


class Segments(torch.nn.Module):
    def forward(self, x):
        offsets = torch.tensor([0, 1, 1, 4])
        return dv.parallel.segment_reduce("mul", x, offsets) + dv.parallel.reduce("logaddexp", x)


class SegmentedScan(torch.nn.Module):
    def forward(self, x):
        return dv.parallel.segmented_scan(SATURATED, x, torch.tensor([0, 3, 4]), exclusive=True)


class Einsum(torch.nn.Module):
    def forward(self, x):
        return dv.tensor.einsum("ij,ik->jk", x, x)


class SparseEinsum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        import scipy.sparse

        self.matrix = scipy.sparse.csr_array(([1.0, 2.0, -1.0, 0.5], ([0, 1, 2, 3], [1, 0, 2, 0])), shape=(4, 4))

    def forward(self, x):
        return dv.tensor.einsum("ij,jk->ik", self.matrix, x)


class Function(torch.nn.Module):
    def __init__(self, patterns: bool = False, **options: Any):
        super().__init__()
        self.patterns = patterns
        program = dv.tensor.parse("sum(<i,r> in A) {i -> sum(<j,a> in r) a*X(j)*X(j)}", {"A": 2, "X": 1})
        given = {"patterns": {"A": PATTERN}} if patterns else {"constants": {"A": PATTERN}}
        self.function = dv.tensor.Function(program, **given, **options)

    def forward(self, x):
        return self.function(A=x[0], X=x[1]) if self.patterns else self.function(X=x[0])


class Expression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.program = dv.tensor.parse("sum(<i,r> in X) sum(<j,a> in r) a*a", {"X": 2})

    def forward(self, x):
        return self.program(X=x)


def circuit(semiring: str, negatives: bool = False) -> Callable[[], torch.nn.Module]:
    class Circuit(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.circuit = dv.circuit.compile(CLAUSES).to_torch(semiring)

        def forward(self, p):
            weights = p.log() if semiring == "log" else p
            return (
                self.circuit(weights, (1 - p).log() if semiring == "log" else 1 - p) if negatives else self.circuit(p)
            )

    Circuit.__qualname__ = Circuit.__name__ = f"Circuit_{semiring}_{negatives}"
    globals()[Circuit.__name__] = Circuit
    return Circuit


class Logic(torch.nn.Module):
    def __init__(self, provenance: Any, log: bool = False, program: str = PATHS, k: int = 2, **options: Any):
        super().__init__()
        inputs = {"edge": dv.independent(EDGES), "off": dv.categorical(range(3), factors=True)}
        outputs = {"path": [(0, 2), (1, 0)], "near": [0, 1]}
        self.layer, self.log = dv.nn.Logic(program, inputs, outputs, provenance, k=k, **options), log

    def forward(self, x):
        found = (self.layer.log if self.log else self.layer)(edge=x[..., :4], off=x[..., 4:])
        return torch.cat([found["path"], found["near"]], -1)


class Loss(torch.nn.Module):
    def __init__(self, inputs: str = "probabilities"):
        super().__init__()
        self.loss = dv.nn.SemanticLoss(CLAUSES, inputs=inputs, reduction="none")

    def forward(self, x):
        return self.loss(x.log() if self.loss.inputs == "log_probabilities" else x)


class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = dv.vsa.ItemMemory((2, 2), generator=3, dtype=torch.float64).add_all(["a", "b", "c"])

    def forward(self, x):
        return self.memory.similarities(x.unflatten(-1, (2, 2)))


class Vectors(torch.nn.Module):
    def __init__(self, model: str):
        super().__init__()
        self.model = model

    def forward(self, x):
        vector = x.unflatten(-1, (2, 2)) if self.model == "block" else x
        turned = dv.vsa.permute(dv.vsa.normalise(vector, model=self.model), 1, model=self.model)
        return dv.vsa.bind(vector, dv.vsa.inverse(turned, model=self.model), model=self.model)


@dataclass(frozen=True)
class Row:
    """An object by a module that calls it.

    make   the module, of rows [4, size] of probabilities
    size   of a row
    """

    make: Callable[[], torch.nn.Module]
    size: int

    def module(self) -> torch.nn.Module:
        torch.manual_seed(0)
        return Calls(self.make(), self.size)

    def inputs(self, seed: int) -> torch.Tensor:
        return torch.randn(4, self.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


ROWS = {
    "scan": Row(Scan, 3),
    "affine scan": Row(Affine, 3),
    "reduce_by_index": Row(ByIndex, 3),
    "segments": Row(Segments, 3),
    "segmented scan": Row(SegmentedScan, 3),
    "einsum": Row(Einsum, 3),
    "sparse einsum": Row(SparseEinsum, 3),
    "function": Row(Function, 4),
    "function of a pattern": Row(lambda: Function(True), 4),
    "function by torch": Row(lambda: Function(backend="torch"), 4),
    "expression": Row(Expression, 3),
    **{
        f"circuit {name}{' and negatives' * negatives}": Row(circuit(name, negatives), 4)
        for name in ("real", "log", "max_product")
        for negatives in (False, True)
        if (name, negatives) != ("log", False)
    },
    **{
        f"logic {name}": Row(lambda name=name: Logic(name), 7)
        for name in ("exact", "topkproofs", "minmaxprob", "addmultprob", "max_product", "nandmultprob")
    },
    "logic of 17 proofs": Row(lambda: Logic("topkproofs", k=17), 7),
    "logic in logs": Row(lambda: Logic("exact", True), 7),
    "semantic loss": Row(Loss, 4),
    "semantic loss of logits": Row(lambda: Loss("logits"), 4),
    "item memory": Row(Memory, 4),
    **{f"vectors {name}": Row(lambda name=name: Vectors(name), 4) for name in ("block", "map", "hrr", "fhrr_real")[:3]},
}
