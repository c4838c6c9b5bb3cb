"""A circuit as hardware: what it answers, how far that is from the exact answer, and its files."""

from __future__ import annotations

import math
import os
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from derivable.algebra.expr.functions import log1mexp
from derivable.circuit.fold.literal_weights import in_columns
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.rtl.arithmetic import CYCLES
from derivable.circuit.rtl.emit import MODULES, emit, input_bits, output_bits
from derivable.circuit.rtl.pipeline import Pipeline, pipeline, run
from derivable.core.arguments import integer
from derivable.core.arrays import as_reals
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.core.files import write_texts
from derivable.core.registry import suggestion

# Rows of a kit's testbench where no weights are given.
ROWS = 64


class CircuitRtl:
    """A circuit as a pipeline of fixed-point numbers or logarithms, an evaluation a cycle.

    circuit    what it evaluates
    semiring   "real": weights and values are numbers; "log": their natural logarithms
    bits       bits behind the point, of numbers or of log2 of them
    pipeline   its operations and their cycles
    files      text by name of file: the module `circuit`, `circuit_host` behind registers, and what they are made of

    Printed form:

        circuit     3 products, 2 sums of real numbers with 8 bits behind the point
        latency     6 cycles, an evaluation a cycle
        weights     6 literals of 9 bits
        values      1 root of 9 bits, within 0.0098 of the exact one
    """

    def __init__(self, circuit: Circuit, semiring: str, bits: int, is_normalised: bool):
        self.circuit, self.semiring, self.bits, self.is_normalised = circuit, semiring, bits, is_normalised
        self.pipeline: Pipeline = pipeline(circuit, semiring, bits, is_normalised)

    @property
    def latency(self) -> int:
        """Cycles from weights to values."""
        return self.pipeline.latency

    @property
    def literals(self) -> list[int]:
        """The literals whose weights go in, in order: signed numbers of variables."""
        return self.pipeline.literals

    @cached_property
    def files(self) -> dict[str, str]:
        return emit(self.pipeline)

    @property
    def error(self) -> NDArray[np.float64]:
        """[root] float64: how far a value is at most from that of exact arithmetic on the same weights.

        "real": of the value. "log": of the logarithm in nats, where the value is not zero; see `lost`.
        """
        unit = (1.0 if self.semiring == "real" else math.log(2)) / (1 << self.bits)
        # More by what the sums of the bound itself are rounded by.
        unit *= 1 + 1e-9
        return np.array([self.pipeline.operations[root].bounds.error * unit for root in self.pipeline.roots])

    @property
    def lost(self) -> NDArray[np.float64]:
        """[root] float64: how much of the exact number a value may leave out as too small for a code; 0 for "real"."""
        return np.array([self.pipeline.operations[root].bounds.lost for root in self.pipeline.roots])

    def codes(self, weights, negative_weights=None) -> NDArray[np.int64]:
        """The words that go in, int64 [*batch, literal].

        weights, negative_weights  as in `Circuit.evaluate`: [*batch, variable], or mappings from variables

        Raises ShapeError, and DomainError for weights outside 0 to 1, and where those of the two literals of a variable
        are more than 1 together but `normalised` was promised.
        """
        positive = self._numbers(weights, "weights")
        if negative_weights is None:
            negative = 1 - positive if self.semiring == "real" else log1mexp(positive)
        else:
            negative = self._numbers(negative_weights, "negative_weights")
            positive, negative = np.broadcast_arrays(positive, negative)
            together = positive + negative if self.semiring == "real" else np.exp(positive) + np.exp(negative)
            if self.is_normalised and together.size and together.max() > 1 + 1e-9:
                raise DomainError(
                    f"the weights of a variable are {together.max():g} together, more than 1",
                    hint="give to_rtl(..., normalised=False), whose values have more bits",
                )
        literals = np.array(self.literals, np.int64)
        columns = np.where(literals > 0, positive[..., np.abs(literals) - 1], negative[..., np.abs(literals) - 1])
        return self.pipeline.arithmetic.encode(columns)

    def _numbers(self, weights, name: str) -> NDArray[np.float64]:
        array = as_reals(in_columns(self.circuit, weights, name), name)
        if array.ndim == 0 or array.shape[-1] != self.circuit.num_variables:
            raise ShapeError(
                f"{name} is {list(array.shape)}, expected [*batch, {self.circuit.num_variables}]: one for each variable"
            )
        low, high = (0.0, 1.0) if self.semiring == "real" else (-math.inf, 0.0)
        outside = ~((array >= low) & (array <= high))
        if outside.any():
            at = tuple(int(one) for one in np.argwhere(outside)[0])
            raise DomainError(f"{name}[{', '.join(map(str, at))}] is {array[at]}, expected {low:g} to {high:g}")
        return array

    def run(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The golden model: the words that come out, int64 [*batch, root], for those that go in, [*batch, literal]."""
        codes = np.asarray(codes, np.int64)
        values = run(self.pipeline, codes.reshape(-1, codes.shape[-1]))
        return values.reshape(*codes.shape[:-1], values.shape[-1])

    def evaluate(self, weights, negative_weights=None) -> NDArray[np.float64]:
        """What the hardware answers, bit by bit: float64 [*batch, root], nats for "log". Raises as `codes` does."""
        return self.pipeline.arithmetic.decode(self.run(self.codes(weights, negative_weights)))

    def write(self, folder: str | os.PathLike, weights=None, negative_weights=None) -> Path:
        """Write the sources and a testbench with vectors and a Makefile into a folder; `make -C FOLDER test` runs it.

        weights, negative_weights  the vectors, [*batch, variable]; random ones by default

        Raises DerivableError where it cannot be written, and as `codes` does.
        """
        if weights is None:
            words = self._random_words()
        else:
            words = self.codes(weights, negative_weights)
        words = words.reshape(-1, len(self.literals))
        if not len(words):
            raise DomainError("there are no vectors: the batch of the weights is empty")
        texts = dict(self.files)
        texts["sources.txt"] = "".join(f"{name}\n" for name in sorted(texts) if name.endswith(".sv"))
        texts["vectors.svh"] = f"localparam int ROWS = {len(words)};\n"
        texts["weights.hex"] = _hex(words, input_bits(self.pipeline))
        texts["values.hex"] = _hex(self.run(words), output_bits(self.pipeline))
        texts |= {name: (MODULES / name).read_text(encoding="utf-8") for name in ("testbench.sv", "Makefile")}
        return write_texts(folder, texts)

    def _random_words(self) -> NDArray[np.int64]:
        """Weights of all sizes, with zeros and ones among them."""
        rng = np.random.default_rng(0)
        positive = rng.random((ROWS, self.circuit.num_variables))
        positive[rng.random(positive.shape) < 0.1] = 0
        positive[rng.random(positive.shape) < 0.1] = 1
        if self.semiring == "real":
            return self.codes(positive)
        with np.errstate(divide="ignore"):
            return self.codes(np.log(positive), np.log1p(-positive))

    def __str__(self) -> str:
        made = self.pipeline
        products, sums, roots = made.count("product"), made.count("sum"), len(made.roots)
        kind = "numbers" if self.semiring == "real" else "logarithms"
        largest = self.error.max(initial=0.0)
        nats = "" if self.semiring == "real" else " nats"
        exact = f"within {largest:.2g}{nats} of the exact {'one' if roots == 1 else 'ones'}"
        return "\n".join(
            [
                f"circuit     {products} product{'s' * (products != 1)}, {sums} sum{'s' * (sums != 1)} of {kind} with "
                f"{self.bits} bits behind the point",
                f"latency     {self.latency} cycles, an evaluation a cycle",
                f"weights     {len(self.literals)} literals of {input_bits(made)} bits",
                f"values      {roots} root{'s' * (roots != 1)} of {output_bits(made)} bits, {exact}",
            ]
        )

    def __repr__(self) -> str:
        made = self.pipeline
        return (
            f"<CircuitRtl {self.semiring} {self.bits} bits, {made.count('product')} products, "
            f"{made.count('sum')} sums, {self.latency} cycles>"
        )


def _hex(words: NDArray[np.int64], bits: int) -> str:
    """A row a line, the first word lowest."""
    rows = (sum(int(word) << (bits * column) for column, word in enumerate(row)) for row in words.tolist())
    return "".join(f"{row:x}\n" for row in rows)


def to_rtl(circuit: Circuit, semiring: str = "real", bits: int = 12, *, normalised: bool = True) -> CircuitRtl:
    """A circuit as hardware: a pipeline that evaluates it once a cycle; see `CircuitRtl`.

    semiring    "real" for fixed-point numbers, "log" for logarithms, which need no multipliers
    bits        behind the point: of numbers, 1 to 24, or of their log2, 1 to 12
    normalised  the weights of the two literals of a variable are at most 1 together, as probabilities are; then no
                value of a decomposable and deterministic circuit is above 1, and words are as short as that

    Raises DomainError for another semiring or number of bits and for a circuit of constants, LimitError where values
    have too many bits.
    Source: the levels are those of Maene et al. 2025; the hardware is this library's own.
    """
    if semiring not in CYCLES:
        raise DomainError(
            f"there is no hardware for the semiring {semiring!r}",
            hint=suggestion(semiring, list(CYCLES), f"there is {' and '.join(CYCLES)}"),
        )
    integer(bits, "bits behind the point", 1, 24 if semiring == "real" else 12)
    made = CircuitRtl(circuit, semiring, bits, normalised)
    if not len(made.literals):
        raise DomainError("the roots of the circuit are constants, so there is nothing to compute in hardware")
    return made
