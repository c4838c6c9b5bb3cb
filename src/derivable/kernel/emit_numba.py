"""Kernels as Numba source.

Scalars print as `algebra.expr.emit_numba` prints them. Lines print as calls of the lane functions of a support package
(`derivable.device.cpu`), by the column `lanes` of the table of operations; those functions take scalars as well, so a
kernel over arrays of lines may be compiled for [position] too. A sum with a product in it is one fused operation there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from derivable.algebra.expr.emit import constant_source
from derivable.algebra.expr.emit_numba import functions_called, statements
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, in_order
from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.expr.types import check_dtype
from derivable.core.diagnostics import TypeMismatchError, UnsupportedError
from derivable.kernel import nodes as n
from derivable.kernel.build import substitute
from derivable.kernel.emit import Printer, indented, infix
from derivable.kernel.lines import line_row

SUPPORT = "derivable.device.cpu"
_HEADER = "import math\n\nimport numpy as np\n"
# Module of the support package -> the functions that kernels call, among them those of the table of operations.
_SUPPORTING: dict[str, set[str]] = {
    "lanes": {"all_set", "load", "multiply_add", "prefetch", "store", "zero_of"}
    | {name for row in OPERATIONS.values() for name in re.findall(r"(\w+)\(", str(row.lanes))}
    | {"to_float", "to_integer"},
    "lane_rows": {"backwards", "first_lane", "last_lane", "load_line", "load_rows", "moved_up"}
    | {"store_line", "store_rows", "zero_line"},
    "places": {"choose", "hash_word", "hidden", "load_bit", "load_scalar", "mix_word", "pointer_at", "set_bit"}
    | {"slot_in", "store_scalar", "tag_of"},
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
        self.before: dict[str, str] = {}

    def function(self, is_inner: bool = False) -> str:
        """The text of the function; `is_inner` if kernels alone call it."""
        fitting = {8: ("bool", "int64", "float64"), 16: ("bool", "float32")}.get(self.kernel.lanes, ())
        if not any(array.is_lines for array in self.kernel.arrays):
            for register in self.lines:
                if register.dtype not in fitting:
                    raise TypeMismatchError(
                        f"kernel {self.kernel.name}: lines of {self.kernel.lanes} lanes do not hold {register.dtype}",
                        hint="8 lanes hold bool, int64 and float64, 16 lanes bool and float32",
                    )
        body = self.block(self.kernel.body)
        parameters = ", ".join(parameter.name for parameter in self.kernel.parameters)
        before = [f"{name} = {text}" for text, name in self.before.items()]
        head = f'@kernel(error_model="numpy"{", is_inner=True" if is_inner else ""})'
        lines = [head, f"def {self.kernel.name}({parameters}):", *indented([*before, *body])]
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

    def once(self, text: str) -> str:
        """The name of what is computed before everything else."""
        if text not in self.before:
            self.before[text] = self.fresh("c")
        return self.before[text]

    def is_line(self, value: Expr) -> bool:
        return any(node in self.lines for node in in_order(value) if isinstance(node, Argument))

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

    def line(self, value: Expr, lines: list[str]) -> str:
        return self.line_tuple((value,), lines)[0]

    def line_tuple(self, values: Sequence[Expr], lines: list[str]) -> list[str]:
        """The texts of values in lines; scalars and constants among them are spread."""
        nodes = in_order(tuple(values))
        inside = [node for node in nodes if self.is_line(node)]
        uses = Counter(operand for node in inside for operand in node.operands)
        uses.update(values)
        texts: dict[Expr, str] = {}
        examples: dict[str, str] = {node.dtype: node.name for node in inside if isinstance(node, Argument)}

        def spread(node: Expr, beside: Sequence[Expr]) -> str:
            if node in texts:
                return texts[node]
            example = next((texts[other] for other in beside if other in texts and other.dtype == node.dtype), None)
            example = example or examples.get(node.dtype) or self.example(node.dtype)
            if isinstance(node, Constant) and node.dtype == "bool":
                text = f"like({example}, {-int(node.value)})"
            else:
                text = f"like({example}, {self.scalar(node, lines)})"
            return text

        fused = {}
        for node in inside:
            if isinstance(node, Apply) and node.operation == "add":
                product = next((x for x in node.operands if _is_product(x) and uses[x] == 1 and x in inside), None)
                if product is not None:
                    fused[product] = node
        for node in inside:
            if isinstance(node, Argument):
                texts[node] = node.name
                continue
            if node in fused:
                continue
            assert isinstance(node, Apply)
            operands = list(node.operands)
            product = next((x for x in operands if fused.get(x) is node), None)
            if product is not None:
                other = operands[1] if operands[0] is product else operands[0]
                parts = [*product.operands, other]
                row = "multiply_add({0}, {1}, {2})"
            else:
                parts = operands
                found = line_row(node)
                if found is None:
                    raise UnsupportedError(f"{node.operation} on {node.dtype} has no form on lines")
                row = found
            known = [part for part in parts if part in texts]
            operand_texts = [spread(part, known) for part in parts]
            for k, operand in enumerate(operand_texts):
                if "(" in operand and row.count(f"{{{k}}}") > 1:
                    operand_texts[k] = self.fresh()
                    lines.append(f"{operand_texts[k]} = {operand}")
            text = row.format(*operand_texts, t=node.dtype)
            if uses[node] == 1 and node not in values and len(text) < 60:
                texts[node] = text
            else:
                texts[node] = self.fresh()
                lines.append(f"{texts[node]} = {text}")
        return [texts[value] if value in texts else spread(value, ()) for value in values]

    def example(self, dtype: str) -> str:
        """A line of that type to make others like it."""
        for array in self.kernel.arrays:
            if array.is_lines and array.dtype == dtype:
                return self.once(f"zero_of({array.name})")
        if dtype == "bool":
            of = "float32" if self.kernel.lanes == 16 else "float64"
            zero = self.example(of)
            return self.once(f"less({zero}, {zero})")
        return self.once(f"zero_line(np.{dtype})")

    def hidden(self, constant: Constant) -> str:
        """A constant in all lanes that the compiler does not know, so that moving lanes up before it stays a shuffle.

        Before zeros that it knows LLVM takes an instruction, vexpandpd, with which a scan of sums takes 2.8 times as
        long.
        """
        example = self.example(constant.dtype)
        if constant.dtype == "bool":
            return self.once(f"like({example}, hidden({-int(constant.value)}))")
        zero = self.once(f"like({example}, hidden(0))")
        if constant.value == 0:
            return zero
        value = constant_source("numba", constant)
        return self.once(f"add(like({example}, {value}), {zero})")

    # Statements

    def statement(self, statement: n.Statement, lines: list[str]) -> None:
        match statement:
            case n.Assign(targets, values):
                if any(target in self.lines for target in targets):
                    texts = self.line_tuple(values, lines)
                elif len(values) == 1:
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
            case n.LoadLine(target, array, index, backwards, count):
                self.whole(count)
                at = self.scalar(index - (self.kernel.lanes - 1) if backwards else index, lines)
                text = f"load_line({array.name}, {at}, {self.example(target.dtype)})"
                lines.append(f"{target.name} = {self.turned(text, backwards)}")
            case n.Store(array, index, value):
                if array.is_lines:
                    text = f"store({array.name}, {self.scalar(index, lines)}, {self.line(value, lines)})"
                else:
                    text = f"store_scalar({array.name}, {self.scalar(index, lines)}, {self.scalar(value, lines)})"
                lines.append(text)
            case n.StoreLine(array, index, value, backwards, count):
                self.whole(count)
                at = self.scalar(index - (self.kernel.lanes - 1) if backwards else index, lines)
                lines.append(f"store_line({array.name}, {at}, {self.turned(self.line(value, lines), backwards)})")
            case n.LoadRows(target, array, index, stride, count):
                place = ", ".join(self.scalar(number, lines) for number in (index, stride, count))
                lines.append(f"{target.name} = load_rows({array.name}, {place}, {self.example(target.dtype)})")
            case n.StoreRows(array, index, stride, count, value):
                place = ", ".join(self.scalar(number, lines) for number in (index, stride, count))
                lines.append(f"store_rows({array.name}, {place}, {self.line(value, lines)})")
            case n.LaneNumbers() | n.Gather() | n.Scatter():
                raise UnsupportedError("Numba's lanes have consecutive rows, not positions of their own")
            case n.Barrier():
                pass
            case n.Call(kernel, arguments):
                given = (x.name if isinstance(x, n.Array) else self.scalar(x, lines) for x in arguments)
                lines.append(f"{kernel.name}({', '.join(given)})")
            case n.ScanLine():
                self.scan_line(statement, lines)
            case n.MoveUp(target, source, fill):
                lines.append(f"{target.name} = moved_up({source.name}, 1, {fill.name})")
            case n.LastLane(target, source):
                lines.append(f"{target.name} = last_lane({source.name})")
            case n.FirstLane(target, source):
                found = f"first_lane({source.name})"
                lines.append(f"{target.name} = {found + ' != 0' if target.dtype == 'bool' else found}")
            case n.Spread(target, value):
                example = self.example(target.dtype)
                text = self.scalar(value, lines)
                if target.dtype == "bool":
                    text = f"-np.int64({text})"
                lines.append(f"{target.name} = like({example}, {text})")
            case n.Hide(target, value):
                lines.append(f"{target.name} = hidden({self.scalar(value, lines)})")
            case n.Choose(target, condition, if_true, if_false):
                which = self.scalar(condition, lines)
                lines.append(f"{target.name} = choose({which}, {if_true.name}, {if_false.name})")
            case n.AllLanes(target, condition):
                text = self.line(condition, lines)
                lines.append(f"{target.name} = all_set({text})")
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
        if array.is_lines:
            lines.append(f"{target.name} = load({array.name}, {at})")
            return
        text = f"load_scalar({array.name}, {at})"
        if target.dtype != array.dtype:
            text = f"{'bool' if target.dtype == 'bool' else f'np.{target.dtype}'}({text})"
        lines.append(f"{target.name} = {text}")

    def whole(self, count: Expr | None) -> None:
        if count is not None:
            raise UnsupportedError("lines of fewer rows than lanes are for GPUs: go through them row by row")

    def turned(self, text: str, backwards: bool) -> str:
        if not backwards:
            return text
        return f"backwards({text})"

    def scan_line(self, statement: n.ScanLine, lines: list[str]) -> None:
        """In as many steps as the number of lanes has bits, each combining what is 1, 2, 4 ... lanes before."""
        if statement.down:
            raise UnsupportedError("Numba's lanes are scanned from the first to the last")
        current = [source.name for source in statement.sources]
        dtypes = [source.dtype for source in statement.sources]
        fills = [self.hidden(constant) for constant in statement.neutral]  # type: ignore[arg-type]
        by = 1
        while by < self.kernel.lanes:
            befores = [self.fresh("m") for _ in current]
            for name, line, fill in zip(befores, current, fills):
                lines.append(f"{name} = moved_up({line}, {by}, {fill})")
            registers = {
                argument: Argument(-1, check_dtype(dtype), name)
                for arguments, names in ((statement.left, befores), (statement.right, current))
                for argument, dtype, name in zip(arguments, dtypes, names)
            }
            self.lines |= frozenset(registers.values())
            current = self.line_tuple(substitute(statement.operator, registers), lines)  # type: ignore[arg-type]
            by *= 2
        lines.append(f"{', '.join(target.name for target in statement.targets)} = {', '.join(current)}")


def _is_product(node: Expr) -> bool:
    return isinstance(node, Apply) and node.operation == "multiply" and node.dtype in ("float32", "float64")


def _range(first: str, last: str, down: bool, step: int) -> str:
    if not down:
        return f"range({first}, {last})" if step == 1 else f"range({first}, {last}, {step})"
    if step == 1:
        return f"range({last} - 1, {first} - 1, -1)"
    return f"range({first} + ({last} - 1 - ({first})) // {step} * {step}, {first} - 1, -{step})"
