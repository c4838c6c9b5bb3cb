"""Number formats of the accelerator, by name; one of layers and one of vectors make a design.

Source: NSFlow (Yang et al., 2025), section IV-D: FP16, FP8, INT8 and INT4, mixed by component.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from derivable.accelerator.operators.runtime import ceil_div
from derivable.core.registry import Registry


@dataclass(frozen=True)
class Precision:
    """A format of `bits` bits.

    products  products of two numbers that one multiplier makes in a cycle
    sum_bits  bits of a sum of products
    """

    name: str
    bits: int
    products: int
    sum_bits: int
    is_float: bool = False


PRECISIONS = Registry(
    "precision",
    {
        precision.name: precision
        for precision in (
            Precision("fp16", 16, 1, 32, is_float=True),
            Precision("fp8", 8, 1, 32, is_float=True),
            Precision("int8", 8, 1, 32),
            Precision("int4", 4, 2, 32),
        )
    },
)


def format_of(name: str, part: str, precision: Mapping[str, str]) -> Precision:
    """The format of an operator: the one of its name, or of the operator that it was written out from (`%softmax_1`
    for `%softmax_1.exp`), or of its part.

    precision  names of formats by names of parts and operators, see `layers.resolve`
    """
    while name and name not in precision:
        name = name.rpartition(".")[0]
    return PRECISIONS[precision[name or part]]


class CalibrationWarning(UserWarning):
    """The ranges of a design's numbers come from one sample, or leave few steps for most of the numbers."""


def bytes_of(elements: int, bits: int) -> int:
    """Bytes that hold so many numbers of `bits` bits without gaps."""
    return ceil_div(elements * bits, 8)
