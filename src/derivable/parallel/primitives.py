"""The registry of primitives, one row each."""

from __future__ import annotations

import difflib

from derivable.core.diagnostics import UnsupportedError
from derivable.parallel import gather, index_folds, join, levels, scans, segment_folds, sort, unique
from derivable.parallel.primitive import Primitive

PRIMITIVES: dict[str, Primitive] = {
    module.PRIMITIVE.name: module.PRIMITIVE
    for module in (gather, segment_folds, index_folds, scans, sort, unique, join)
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
