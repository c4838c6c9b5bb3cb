"""Elements as flat leaves [row, column, size] (size: scalars of the leaf), and component by component."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivable.algebra.monoid import TypedMonoid

Leaves = tuple[np.ndarray, ...]


def to_components(leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
    """[component] arrays [row, column]; views."""
    return [leaf[..., k] for leaf in leaves for k in range(leaf.shape[-1])]


def to_leaves(op: TypedMonoid, components: Sequence[np.ndarray]) -> Leaves:
    """The flat leaves of elements of `op` given component by component [row, column]."""
    return tuple(
        np.stack(np.broadcast_arrays(*components[start:stop]), axis=-1).astype(dtype)
        for start, stop, dtype in zip(op.starts, op.starts[1:], op.leaf_dtypes)
    )


def zeros_for_none(adjoints: Sequence[np.ndarray | None], like: Sequence[np.ndarray]) -> Leaves:
    """Adjoints with zeros for those that are not given."""
    return tuple(np.zeros_like(leaf) if adjoint is None else adjoint for adjoint, leaf in zip(adjoints, like))


def only_floats(op: TypedMonoid, leaves: Sequence[np.ndarray]) -> tuple[np.ndarray | None, ...]:
    """Adjoints as they are handed out: None for the leaves that are not floats."""
    return tuple(leaf if k in op.float_leaves else None for k, leaf in enumerate(leaves))
