"""Object code in this process: LLVM links it in a tenth of a millisecond."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from derivable.core.forks import renew_in_children

# Of who links: code that is linked twice would have its name twice.
lock = threading.RLock()
renew_in_children(globals(), lock=threading.RLock)


@cache
def initialize() -> None:
    """Have LLVM know this processor."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@cache
def _engine() -> Any:
    """What links."""
    from llvmlite import binding as llvm

    initialize()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def link(name: str, code: bytes) -> int:
    """The address of a function of object code, which no other code has a function of that name."""
    from llvmlite import binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine.get_function_address(name)
