"""Kernels on disk by what they are made from: a process that finds one here neither builds it nor prints its text,
which takes 3 to 10 ms where to read takes a tenth.

A file says where the code of a kernel is, how it is called, and what its maker notes of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from derivable.algebra.expr.nodes import Argument, Constant, Expr, in_order
from derivable.algebra.monoid import Monoid
from derivable.algebra.semiring import Semiring, TypedSemiring
from derivable.algebra.typed import TypedMonoid
from derivable.core.cache import cache_directory, sources_digest
from derivable.core.diagnostics import DerivableError
from derivable.core.files import atomic_write
from derivable.device.cpu import llvm_code

# What kernels compute of these is in expressions, which they have besides their functions.
_TRACED = Semiring, Monoid, TypedSemiring, TypedMonoid
_texts: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


class _Unsaid(Exception):
    """Something that a text cannot say."""


class KernelFiles:
    """The files of kernels whose text is made by some modules, patterns of paths below the package."""

    def __init__(self, modules: Sequence[str]):
        self.modules = modules

    @cached_property
    def stamp(self) -> str:
        """Of these modules' texts, and of what compiles kernels."""
        return f"{llvm_code.target()}\0{sources_digest(self.modules)}"

    def path(self, key: tuple) -> Path | None:
        """Where a kernel is that is made of that: functions and classes by name, numbers, texts, expressions and
        dataclasses of these. None if it is made of anything else."""
        try:
            text = text_of(key)
        except _Unsaid:
            return None
        digest = hashlib.sha256(f"{self.stamp}\0{text}".encode()).hexdigest()[:40]
        # To write a file looks through its folder.
        return cache_directory() / "plans" / digest[:2] / f"{digest[2:]}.json"

    def read(self, path: Path) -> dict | None:
        try:
            return json.loads(path.read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, path: Path, content: dict) -> None:
        # Where nothing can be written, each process makes its kernels. One cut short is no JSON, and made again.
        with suppress(OSError, DerivableError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, "wb", is_durable=False) as file:
                file.write(json.dumps(content).encode())


def text_of(value: Any) -> str:
    """What says all of a value; equal texts are of equal values."""
    if isinstance(value, Expr):
        return _text_of_expressions((value,))
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(text_of, value))})"
    if isinstance(value, (type, FunctionType)) or hasattr(value, "__wrapped__"):
        if "<" in value.__qualname__:
            raise _Unsaid
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, np.generic):
        return f"{value.dtype}:{value!r}"
    if isinstance(value, _TRACED):
        if value not in _texts:
            _texts[value] = _text_of_fields(value, is_traced=True)
        return _texts[value]
    if is_dataclass(value):
        return _text_of_fields(value, is_traced=False)
    raise _Unsaid


def _text_of_fields(value: Any, is_traced: bool) -> str:
    parts = [getattr(value, field.name) for field in fields(value)]
    texts = ["function" if is_traced and callable(part) else text_of(part) for part in parts]
    return f"{text_of(type(value))}({','.join(texts)})"


def _text_of_expressions(roots: tuple[Expr, ...]) -> str:
    numbers: dict[Expr, int] = {}
    lines = []
    for number, node in enumerate(in_order(roots)):
        numbers[node] = number
        if isinstance(node, Constant):
            lines.append(f"{node.value!r}:{node.dtype}")
        elif isinstance(node, Argument):
            lines.append(f"{node.name!r}{node.index}:{node.dtype}")
        else:
            operands = " ".join(str(numbers[operand]) for operand in node.operands)
            lines.append(f"{node.operation}[{operands}]:{node.dtype}")  # type: ignore[attr-defined]
    return f"<{';'.join(lines)}>"
