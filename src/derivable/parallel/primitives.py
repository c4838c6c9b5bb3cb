"""The registry of primitives, one row each."""

from __future__ import annotations

import difflib

from derivable.core.diagnostics import UnsupportedError
from derivable.parallel import folds, gather, join, levels, sort, unique
from derivable.parallel.primitive import Primitive

PRIMITIVES: dict[str, Primitive] = {
    primitive.name: primitive
    for primitive in (gather.PRIMITIVE, *folds.PRIMITIVES, sort.PRIMITIVE, unique.PRIMITIVE, join.PRIMITIVE)
}
PRIMITIVES["fold_levels"] = Primitive(
    "fold_levels",
    levels.fold_levels,
    levels.fold_levels_shape,
    levels.fold_levels_vjp,
    None,
    "float leaves, in reverse mode; the structure is not differentiable",
)


def get(name: str) -> Primitive:
    """The primitive called `name`. Raises UnsupportedError for an unknown one, with the nearest name."""
    if not isinstance(name, str) or name not in PRIMITIVES:
        near = difflib.get_close_matches(str(name), PRIMITIVES, 1)
        raise UnsupportedError(
            f"there is no primitive {name!r}",
            hint=f"did you mean {near[0]!r}?" if near else f"known are {', '.join(PRIMITIVES)}",
        )
    return PRIMITIVES[name]
