"""Kernels as Numba source.

Scalars print as `algebra.expr.emit_numba` prints them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from derivable.algebra.expr.emit_numba import functions_called, statements
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.nodes import Argument, Expr, in_order
from derivable.core.diagnostics import UnsupportedError
from derivable.kernel import nodes as n
from derivable.kernel.emit import Printer, indented, infix

SUPPORT = "derivable.device.cpu"
_HEADER = "import math\n\nimport numpy as np\n"
# Module of the support package -> the functions that kernels call.
_SUPPORTING: dict[str, set[str]] = {
    "places": {"choose", "hash_word", "hidden", "load_bit", "load_scalar", "mix_word", "pointer_at", "prefetch"}
    | {"set_bit", "slot_in", "store_scalar", "tag_of"},
}
_RENAMED = {"load_scalar": "load as load_scalar", "store_scalar": "store as store_scalar"}


def compile_kernel(kernel: n.Kernel) -> Callable:
    """The jitted function of a kernel, from the cache on disk where it was compiled before."""
    return _loaded(kernel, False)


def compile_packed(kernel: n.Kernel) -> Any:
    """The function of a kernel with packed arguments, a `tiers.Packed`.

    The kernel's first two parameters are arrays of int64, `memory` and `block`. It is called with their addresses, and
    memory[block[k]] is its next parameter k: a scalar, or the address of an array. It returns one int64.
    """
    return _loaded(kernel, True)


def _loaded(kernel: n.Kernel, is_packed: bool, is_inner: bool = False) -> Any:
    """The function of a kernel. What it calls is in modules of its own, and compiled once for all that call it."""
    printer = _Printer(kernel)
    body = printer.packed() if is_packed else printer.function(is_inner)
    elsewhere = {called.name: _loaded(called, False, True).__module__ for called in _called_by(kernel)}
    for text in functions_called(printer.scalars):
        name = text.partition("def ")[2].partition("(")[0]
        elsewhere[name] = load_generated(_module([text]), name).__name__
    return getattr(load_generated(_module([body], elsewhere), kernel.name), kernel.name)


def emit_numba(*kernels: n.Kernel) -> str:
    """A module with one jitted function per kernel, those that they call included."""
    printers = [_Printer(kernel) for kernel in dict.fromkeys(k for kernel in kernels for k in _with_called(kernel))]
    bodies = [printer.function() for printer in printers]
    return _module([*functions_called([expr for printer in printers for expr in printer.scalars]), *bodies])


def _module(functions: Sequence[str], elsewhere: Mapping[str, str] = MappingProxyType({})) -> str:
    """The text of a module with these functions; `elsewhere` has the modules of others that they call, by name."""
    text = "\n".join(functions)
    called: set[str] = set(re.findall(r"(?<![\w.])(\w+)\(", text)) - set(re.findall(r"^def (\w+)", text, re.MULTILINE))
    imports = [f"from {module} import {name}\n" for name, module in elsewhere.items()]
    for module, names in _SUPPORTING.items():
        if needed := [_RENAMED.get(name, name) for name in called & names]:
            imports.append(f"from {SUPPORT}.{module} import {', '.join(sorted(needed))}\n")
    decorators: set[str] = set(re.findall(r"^@(\w+)", text, re.MULTILINE))
    if "njit" in decorators:
        imports.append(f"from {SUPPORT}.compiling import njit\n")
    if tiers := sorted(decorators - {"njit"}):
        imports.append(f"from {SUPPORT}.tiers import {', '.join(tiers)}\n")
    return "\n\n".join(["".join([_HEADER, *imports]), *functions])


def _called_by(kernel: n.Kernel) -> list[n.Kernel]:
    return list(dict.fromkeys(one.kernel for one in n.walk(kernel.body) if isinstance(one, n.Call)))


def _with_called(kernel: n.Kernel) -> Iterator[n.Kernel]:
    for called in _called_by(kernel):
        yield from _with_called(called)
    yield kernel


class _Printer(Printer):
    """The text of one kernel, and the scalar expressions whose functions it calls."""

    def __init__(self, kernel: n.Kernel):
        super().__init__(kernel)
        self.scalars: list[Expr] = []

    def function(self, is_inner: bool = False) -> str:
        """The text of the function; `is_inner` if kernels alone call it."""
        if self.lines or any(array.is_lines for array in self.kernel.arrays):
            raise UnsupportedError(f"kernel {self.kernel.name}: Numba's kernels have no lines")
        body = self.block(self.kernel.body)
        parameters = ", ".join(parameter.name for parameter in self.kernel.parameters)
        head = f'@kernel(error_model="numpy"{", is_inner=True" if is_inner else ""})'
        lines = [head, f"def {self.kernel.name}({parameters}):", *indented(body)]
        return "\n".join(lines) + "\n"

    def packed(self) -> str:
        """The function that gets addresses; loads through pointers need no count of references."""
        memory, block, *rest = self.kernel.parameters
        body = [f"{one.name} = pointer_at({one.name}_address, np.int64)" for one in (memory, block)]
        for place, parameter in enumerate(rest):
            word = f"load_scalar({memory.name}, load_scalar({block.name}, {place}))"
            if isinstance(parameter, n.Array):
                word = f"pointer_at({word}, np.{parameter.dtype})"
            body.append(f"{parameter.name} = {word}")
        body += self.block(self.kernel.body)
        head = f"def {self.kernel.name}({memory.name}_address, {block.name}_address):"
        return "\n".join(["@Packed", head, *indented(body)]) + "\n"

    # Names

    # Expressions

    def scalar(self, value: Expr, lines: list[str]) -> str:
        """The text of a scalar; statements that it needs go to `lines`."""
        text = infix(value)
        if text is not None:
            return text
        return self.scalar_tuple((value,), lines)[0]

    def scalar_tuple(self, values: Sequence[Expr], lines: list[str]) -> list[str]:
        self.scalars.extend(values)
        arguments = [node for node in in_order(tuple(values)) if isinstance(node, Argument)]
        more, texts = statements(values, {a: a.name for a in arguments}, f"{self.fresh('t')}_", "")
        lines += more
        return texts

    # Statements

    def statement(self, statement: n.Statement, lines: list[str]) -> None:
        match statement:
            case n.Assign(targets, values):
                if len(values) == 1:
                    texts = [self.scalar(values[0], lines)]
                else:
                    short = [infix(value) for value in values]
                    texts = self.scalar_tuple(values, lines) if None in short else short
                lines.append(f"{', '.join(t.name for t in targets)} = {', '.join(map(str, texts))}")
            case n.Load(target, array, index):
                self.load(target, array, index, lines)
            case n.LoadBit(target, array, index):
                lines.append(f"{target.name} = load_bit({array.name}, {self.scalar(index, lines)})")
            case n.SetBit(array, index):
                lines.append(f"set_bit({array.name}, {self.scalar(index, lines)})")
            case n.Hash(slot, tag, words, size):
                found = self.fresh("h")
                text = f"hash_word({self.scalar(words[0], lines)})"
                for word in words[1:]:
                    text = f"mix_word({text}, {self.scalar(word, lines)})"
                lines.append(f"{found} = {text}")
                place = f"slot_in({found}, {self.scalar(size, lines)})"
                lines.append(f"{slot.name}, {tag.name} = {place}, tag_of({found})")
            case n.Store(array, index, value):
                text = f"store_scalar({array.name}, {self.scalar(index, lines)}, {self.scalar(value, lines)})"
                lines.append(text)
            case n.Barrier():
                pass
            case n.Call(kernel, arguments):
                given = (x.name if isinstance(x, n.Array) else self.scalar(x, lines) for x in arguments)
                lines.append(f"{kernel.name}({', '.join(given)})")
            case n.Hide(target, value):
                lines.append(f"{target.name} = hidden({self.scalar(value, lines)})")
            case n.Choose(target, condition, if_true, if_false):
                which = self.scalar(condition, lines)
                lines.append(f"{target.name} = choose({which}, {if_true.name}, {if_false.name})")
            case n.Prefetch(array, index):
                lines.append(f"prefetch({array.name}, {self.scalar(index, lines)})")
            case n.For(index, start, stop, body, down, step):
                first, last = self.scalar(start, lines), self.scalar(stop, lines)
                text = _range(first, last, down, step)
                lines += [f"for {index.name} in {text}:", *indented(self.block(body))]
            case n.While(condition, body):
                short = infix(condition)
                if short is not None:
                    lines += [f"while {short}:", *indented(self.block(body))]
                else:
                    test: list[str] = []
                    text = self.scalar(condition, test)
                    test += [f"if not {text}:", "    break"]
                    lines += ["while True:", *indented(test), *indented(self.block(body))]
            case n.If():
                self.branch(statement, lines)
            case n.Break():
                lines.append("break")
            case n.Continue():
                lines.append("continue")
            case n.Return(values):
                texts = [self.scalar(value, lines) for value in values]
                lines.append(f"return {', '.join(texts)}".rstrip())
            case n.Comment(text):
                lines.append(f"# {text}")

    def load(self, target: n.Register, array: n.Array, index: Expr, lines: list[str]) -> None:
        at = self.scalar(index, lines)
        text = f"load_scalar({array.name}, {at})"
        if target.dtype != array.dtype:
            text = f"{'bool' if target.dtype == 'bool' else f'np.{target.dtype}'}({text})"
        lines.append(f"{target.name} = {text}")


def _range(first: str, last: str, down: bool, step: int) -> str:
    if not down:
        return f"range({first}, {last})" if step == 1 else f"range({first}, {last}, {step})"
    if step == 1:
        return f"range({last} - 1, {first} - 1, -1)"
    return f"range({first} + ({last} - 1 - ({first})) // {step} * {step}, {first} - 1, -{step})"
