"""What an engine states to be differentiated: a function of arrays, its vjp, and itself on dual numbers.

Derivatives of any order, forwards and backwards, need two functions only. Let F be the engine's function, D the same of
dual numbers (elements x with tangents t), and P(x, c) the vjp of F at x for the adjoint c.

    tangent of F(x) along t        the tangent part of D(x, t)
    tangent of P(x, c) along t, u  the x part of the vjp of D at (x, t) for the adjoint (u, c)
    vjp of P(x, c) for s           by c: the tangent part of D(x, s);
                                   by x: the x part of the vjp of D at (x, s) for the adjoint (0, c)

The last two are the symmetry of second derivatives. All right sides are D and vjps of it, so the rules apply to their
own results. `torch` and `jax` make of this what these libraries know of a function.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from derivable.core.diagnostics import UnsupportedError

Shape = tuple[int, ...]
Arrays = Sequence[np.ndarray]
# None stands for zeros.
Adjoints = Sequence[np.ndarray | None]
Functions = tuple[Callable[..., list], Callable[..., list]]

# By their places in memory: engines that are equal are several.
_live: weakref.WeakValueDictionary[int, Engine] = weakref.WeakValueDictionary()
_process, _engines = uuid.uuid4().hex, itertools.count()


def live_engines() -> Iterator[Engine]:
    """Those of this process that are registered, and alive."""
    return iter([engine for engine in list(_live.values()) if engine is not None])


class Engine(ABC):
    """A function (structure, *operands) of arrays to results, for operands of known types; immutable.

    The structure is an array of integers, or None. Operands come in groups of elements, leaf by leaf; the results are a
    group too, unless an engine says otherwise. Engines that are equal compute the same.

    groups       how many elements' worth of operands there are
    leaves       arrays of a group
    float_leaves  those that have derivatives
    keeps_factors  whether what is kept, if something is, is what the adjoint of the one result is to be multiplied by:
                 for each operand an array of its shape
    sums_by_index  whether it adds the rows of the second operand to those of the first that the structure names
    reads_results  whether `pull` reads the results, or is handed none where nothing was kept
    batch_axis   where all operands and results may have one more axis, for as many calls at once; None if nowhere
    """

    groups: int = 1
    batch_axis: int | None = 0
    keeps_factors: bool = False
    sums_by_index: bool = False
    reads_results: bool = True

    leaves: int
    float_leaves: tuple[int, ...]

    @cached_property
    def num_operands(self) -> int:
        return self.groups * self.leaves

    @cached_property
    def num_results(self) -> int:
        return self.leaves

    @cached_property
    def float_results(self) -> tuple[int, ...]:
        return self.float_leaves

    @cached_property
    def float_operands(self) -> tuple[int, ...]:
        """The operands that have derivatives."""
        return tuple(group * self.leaves + leaf for group in range(self.groups) for leaf in self.float_leaves)

    @abstractmethod
    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        """Shapes of the results from those of the structure and of the operands."""

    def result_dtypes(self, dtypes: Sequence[Any]) -> Sequence[Any]:
        """Types of the results from those of the operands, in any library."""
        return dtypes[: self.num_results]

    @abstractmethod
    def apply(self, structure: np.ndarray | None, operands: Arrays) -> list[np.ndarray]:
        """The results."""

    @abstractmethod
    def pull(self, structure: Any, adjoints: Adjoints, operands: Arrays, results: Arrays, kept: Arrays = ()) -> list:
        """The vjp: adjoints [float operand] from those of the results [float result].

        kept  the second part of `apply_keeping`, if that was called; is not changed
        """

    def apply_keeping(self, structure: Any, operands: Arrays, *, whole: bool = False) -> tuple[list, list]:
        """(results, what `pull` can be handed to save it work): `apply` when a vjp will be asked for.

        whole  arrays as `kept_whole` says, for callers that must know before; `keeps_whole` says whether that is
               worth it
        """
        return self.apply(structure, operands), []

    def keeps_whole(self, shapes: Sequence[Shape]) -> bool:
        """Whether to keep what `pull` can be handed, for operands of these shapes."""
        return False

    def kept_whole(self, shapes: Sequence[Shape], dtype: Any) -> list[tuple[Shape, Any]]:
        """Shapes and dtypes of what `apply_keeping` keeps if `whole`, for operands of these shapes and the type of the
        first."""
        return []

    def checked(self, structure: np.ndarray, operands: Sequence[Any]) -> np.ndarray:
        """The structure as `apply` takes it. Raises LayoutError if it does not fit the operands."""
        return structure

    @property
    def dual(self) -> Engine:
        """The engine of elements with tangents. Raises UnsupportedError if there is none."""
        raise UnsupportedError(f"{self} has first derivatives backwards only")

    def elsewhere(self, library: str) -> Functions:
        """(apply, pull) on the arrays of "torch" or "JAX", for devices without kernels.

        Raises UnsupportedError if the engine runs on the CPU only.
        """
        raise UnsupportedError(f"{self} runs on the CPU only")

    def apply_on_device(self, structure: Any, operands: Sequence[Any], keep: bool) -> tuple[list, list]:
        """`apply_keeping` on torch tensors that are not on the CPU; without `keep` nothing is kept."""
        return self.elsewhere("torch")[0](structure, operands), []

    @cached_property
    def key(self) -> str:
        """Names what is computed, also in other processes; another for each engine unless a class says otherwise."""
        return f"{self} {_process} {next(_engines)}"

    @cached_property
    def number(self) -> int:
        """The key as 63 bits, the name of an engine for interfaces that take numbers only."""
        digest = hashlib.sha256(f"{type(self).__name__} {self.key}".encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 1

    def registered(self) -> Self:
        """Itself, which graphs that are read from files then know as long as it lives."""
        _live[id(self)] = self
        return self

    # The order of operands of dual numbers: of each group its leaves, then the tangents of its float leaves.

    def dual_operands(self, operands: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """Operands of `dual` from those of this engine and tangents [float operand]."""
        leaves, floats = self.leaves, len(self.float_leaves)
        found: list[Any] = []
        for group in range(self.groups):
            found += operands[group * leaves : (group + 1) * leaves]
            found += tangents[group * floats : (group + 1) * floats]
        return found

    def dual_tangents(self, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
        """Tangents [float operand of `dual`] from those of operands and those of tangents."""
        floats = len(self.float_leaves)
        return [
            tangent
            for group in range(self.groups)
            for part in (first, second)
            for tangent in part[group * floats : (group + 1) * floats]
        ]

    def tangents_of(self, dual_results: Sequence[Any]) -> list[Any]:
        """[float result] the tangents among the results of `dual`."""
        return list(dual_results[self.num_results :])

    def dual_adjoints(self, adjoints: Sequence[Any], tangent_adjoints: Sequence[Any]) -> list[Any]:
        """Adjoints [float result of `dual`] of results and of their tangents, each [float result]."""
        return [*adjoints, *tangent_adjoints]

    def primal_adjoints(self, dual_adjoints: Sequence[Any]) -> list[Any]:
        """[float operand] of the adjoints of the dual operands, those that are not of tangents."""
        floats = len(self.float_leaves)
        return [
            adjoint
            for group in range(self.groups)
            for adjoint in dual_adjoints[2 * floats * group : 2 * floats * group + floats]
        ]
