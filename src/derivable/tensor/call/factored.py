"""Outer products that stay in their factors until their entries are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.diagnostics import LayoutError, ShapeError
from derivable.device.cpu.llvm_code import compile_kernel
from derivable.kernel.build import Builder
from derivable.tensor.language import nodes as t
from derivable.tensor.lower.results import filled, has_nan
from derivable.tensor.values.values import Coordinates, entries_at

if TYPE_CHECKING:
    from derivable.tensor.call.compilation import Kernel


class NotExact(Exception):
    """Where a factor is zero the other one is not finite: what the zero is the sum of may be numbers that cancel."""


@dataclass(frozen=True, eq=False)
class Factored:
    """The outer product of two real tensors: the axes of the left one, then those of the right one.

    left, right  dense arrays, or Coordinates of sparse tensors
    """

    left: Any
    right: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.left.shape, *self.right.shape)

    @property
    def is_finite(self) -> bool:
        """Whether all products are those of the numbers that factors are sums of."""
        parts = (part.values if isinstance(part, Coordinates) else part for part in (self.left, self.right))
        return all(bool(np.isfinite(part).all()) for part in parts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.to_numpy(), dtype)

    def __repr__(self) -> str:
        return f"Factored({' x '.join(map(str, self.left.shape))} by {' x '.join(map(str, self.right.shape))})"

    def entries(self, indices: Any) -> np.ndarray:
        """[entry] what stands at some places, zero where nothing does.

        indices  [axis, entry] integers

        Raises ShapeError for another number of axes, LayoutError for an index outside the shape.
        """
        places = np.asarray(indices)
        if places.ndim != 2 or len(places) != len(self.shape):
            raise ShapeError(
                f"the indices are {list(places.shape)}, [axis, entry], of a tensor of order {len(self.shape)}"
            )
        bounds = np.array(self.shape)[:, None]
        outside = (places < 0) | (places >= bounds)
        if outside.any():
            axis, entry = np.argwhere(outside)[0]
            raise LayoutError(f"entry {entry} has the index {places[axis, entry]} of an axis of {self.shape[axis]}")
        order = len(self.left.shape)
        return _times(_at(self.left, places[:order]), _at(self.right, places[order:]))

    def to_numpy(self, zero: Any = 0.0, out: np.ndarray | None = None) -> np.ndarray:
        """The dense array, `out` if it is given. Raises ShapeError, LayoutError if that is none for it."""
        left, right = (
            part.to_numpy(zero) if isinstance(part, Coordinates) else part for part in (self.left, self.right)
        )
        dtype = np.result_type(left, right)
        whole = filled(out, self.shape, None, dtype)
        parts = (np.ascontiguousarray(part, dtype).reshape(-1) for part in (left, right))
        _multiplying(dtype)(left.size, right.size, *parts, whole.reshape(-1))
        # Products of finite numbers are numbers.
        if not self.is_finite and has_nan(whole):
            whole[...] = _times(left.reshape(*left.shape, *[1] * right.ndim), right)
        return whole

    def coordinates(self) -> Coordinates:
        """All entries: of dense factors every one."""
        left, right = (_entries(part) for part in (self.left, self.right))
        indices = np.vstack(
            [
                np.repeat(left.indices, len(right.values), axis=1),
                np.tile(right.indices, len(left.values)),
            ]
        )
        return Coordinates(self.shape, indices, _times(left.values[:, None], right.values).reshape(-1))

    def to(self, form: str, zero: Any = 0.0) -> Any:
        """The tensor in one of the forms of `Coordinates.to`."""
        return self.to_numpy(zero) if form in ("numpy", "dense") else self.coordinates().to(form, zero)


@dataclass(frozen=True)
class Product:
    """How an outer product is computed.

    factors  kernels of what is made first, by name
    whole    a function of these, of inputs, and of `out`, all by name; it and factors raise NotExact
    passed   the inputs that `whole` takes besides
    """

    factors: Mapping[str, Kernel]
    whole: Callable[..., Any]
    passed: Sequence[str] = ()

    @property
    def inputs(self) -> set[str]:
        """The names of all that is needed."""
        return {*self.passed}.union(*(factor.inputs for factor in self.factors.values()))

    def __call__(self, given: Mapping[str, Any], out: Any = None) -> Any:
        """The result. Raises NotExact."""
        made = {
            name: factor(**{name: given.get(name) for name in factor.inputs}) for name, factor in self.factors.items()
        }
        return self.whole(**made, **{name: given[name] for name in self.passed}, out=out)


def is_simple(node: t.Node) -> bool:
    """Whether a factor takes as little where it is multiplied as it would made before: an input, or one number at each
    index."""
    match node:
        case t.Var() | t.One() | t.Number():
            return True
        case t.Sum(value=index, range=t.Range(), body=t.Singleton(key=t.Var(key), value=value)):
            return index == key and is_simple(value)
    return False


def _times(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Products, of which zero times an infinity is zero."""
    with np.errstate(invalid="ignore"):
        found = left * right
    return np.where((left == 0) | (right == 0), 0, found) if has_nan(found) else found


@cache
def _multiplying(dtype: np.dtype) -> Any:
    """A kernel for outer products, which writes three times as fast as `np.multiply.outer`."""
    build = Builder("outer_product")
    rows, columns = build.scalar("rows"), build.scalar("columns")
    left, right, out = (build.array(name, str(dtype)) for name in ("left", "right", "out"))
    with build.loop("i", 0, rows) as i:
        x = build.load(left, i, "x")
        start = build.let("start", i * columns)
        with build.loop("j", 0, columns) as j:
            build.store(out, start + j, x * build.load(right, j, "y"))
    return compile_kernel(build.kernel())


def _entries(part: Any) -> Coordinates:
    if isinstance(part, Coordinates):
        return part
    return Coordinates(part.shape, np.indices(part.shape).reshape(part.ndim, -1), part.reshape(-1))


def _at(part: Any, indices: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    if not isinstance(part, Coordinates):
        return part[tuple(indices)]
    indices = np.asarray(indices)
    if not part.num_entries:
        return np.zeros(indices.shape[1], part.values.dtype)
    positions, is_entry = entries_at(indices, part)
    return np.where(is_entry, part.values[positions], 0)
