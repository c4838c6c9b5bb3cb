"""What a forked child must make anew: locks that another thread held, and pools whose threads it has not."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def renew_in_children(names: dict[str, Any], **makers: Callable[[], Any]) -> None:
    """Assign what the makers give to the global variables `names` of a module in every forked child.

    Printed form, in the module:

        renew_in_children(globals(), _lock=threading.Lock)
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: names.update({name: make() for name, make in makers.items()}))
