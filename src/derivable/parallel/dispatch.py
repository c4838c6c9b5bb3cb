"""The primitives, each call on the device that the table picks for its arrays.

The same names and signatures as `derivable.parallel.reference`, whose docstrings say what they mean.
"""

from __future__ import annotations

import functools
from typing import Any

from derivable.parallel import reference
from derivable.parallel.table import choose

__all__ = []
__all__ += reference.__all__


def _dispatched(name: str) -> Any:
    primitive, _, rule = name.rpartition("_") if name.endswith(("_vjp", "_jvp")) else (name, "", "")

    @functools.wraps(getattr(reference, name))
    def call(*arguments: Any, **options: Any) -> Any:
        return choose(primitive, *arguments, *options.values(), rule=rule).function(*arguments, **options)

    return call


for _name in __all__:
    globals()[_name] = _dispatched(_name)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"there is no primitive {name!r}")
