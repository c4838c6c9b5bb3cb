"""What a call decides by, of each operand: looked at once."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from derivable.tensor.values.libraries import imported
from derivable.tensor.values.values import Coordinates, library_of, tracker


class Signature(NamedTuple):
    """An operand, but for its numbers and where its entries are: operands of one signature go the same way.

    arrays_of  the library, as of `library_of`
    layout     "dense", "csr" of SciPy, "sparse" of torch and of Coordinates; "" for all that is converted first
    dtype      of the values
    shape      (size of each axis), where the layout is known
    who        as of `tracker`
    """

    arrays_of: str
    layout: str = ""
    dtype: Any = None
    shape: tuple[int, ...] = ()
    who: str | None = None

    @property
    def is_dense(self) -> bool:
        return self.layout == "dense"

    @property
    def count(self) -> int:
        """Of places, which are the entries of a dense one."""
        return math.prod(self.shape)


def signature_of(value: Any) -> Signature:
    if type(value) is np.ndarray:
        return Signature("numpy", "dense", value.dtype, value.shape)
    if type(value) is Coordinates:
        return Signature("coordinates", "sparse", value.values.dtype, value.shape, tracker((value,)))
    library = library_of(value)
    if library == "scipy" and value.format == "csr" and value.ndim == 2:
        return Signature("scipy", "csr", value.dtype, value.shape)
    if library == "torch":
        layout = "dense" if value.layout is imported("torch").strided else "sparse"
        return Signature("torch", layout, value.dtype, tuple(value.shape), tracker((value,)))
    return Signature(library)
