"""Kernels as Triton source: a line is a tile of rows, a parallel loop is one program for each round.

A scalar beside a tile is spread by Triton itself. Scans within a tile are `tl.associative_scan` with the operator as a
function of its own, so they are as parallel as the device. What Triton has not is refused: leaving loops early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from derivable.algebra.expr.emit import statements, type_source
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.nodes import Argument, Constant, Expr, in_order
from derivable.algebra.expr.types import check_dtype
from derivable.core.diagnostics import MissingDependencyError, UnsupportedError
from derivable.kernel import nodes as n
from derivable.kernel.emit import Printer, indented, infix

_HEADER = "import triton\nimport triton.language as tl\n"


def compile_triton(kernel: n.Kernel, warps: int = 4, any_number: Sequence[str] = ()) -> Callable:
    """The function launch(programs, *arguments) of a kernel, on torch tensors: on a GPU, or in Triton's interpreter.
    It gives the compiled kernel k, which `k[programs, 1, 1](*arguments)` launches sooner, for the same numbers and for
    tensors of the same types, as long as their addresses are multiples of 16; the interpreter gives None.

    programs    their number, or one number for each axis of parallel loops
    warps       of 32 threads, which share the lanes of a program
    any_number  scalars whose numbers Triton is not to look at: another kernel is made for 1, and for multiples of 16

    Raises MissingDependencyError without Triton, UnsupportedError for what Triton has not.
    """
    try:
        import triton  # noqa: F401
    except ImportError:
        raise MissingDependencyError("kernels for GPUs need Triton", hint="pip install triton") from None
    module: Any = load_generated(emit_triton(kernel, any_number), kernel.name)
    function = getattr(module, kernel.name)

    def launch(programs: int | tuple[int, ...], *arguments: Any) -> Any:
        return function[programs if isinstance(programs, tuple) else (programs,)](*arguments, num_warps=warps)

    return launch


def emit_triton(kernel: n.Kernel, any_number: Sequence[str] = ()) -> str:
    """A module with the operators of the kernel's scans and the kernel, `triton.jit` functions."""
    if kernel.lanes & (kernel.lanes - 1):
        raise UnsupportedError(f"a tile of {kernel.lanes} rows: Triton's have a power of two")
    printer = _Printer(kernel)
    body = printer.block(kernel.body)
    parameters = ", ".join(parameter.name for parameter in kernel.parameters)
    options = f"(do_not_specialize={list(any_number)})" if any_number else ""
    lines = [f"@triton.jit{options}", f"def {kernel.name}({parameters}):", *indented([*printer.before(), *body])]
    return "\n\n".join([_HEADER, *printer.operators.values(), "\n".join(lines) + "\n"])


class _Printer(Printer):
    """The text of one kernel."""

    def __init__(self, kernel: n.Kernel):
        super().__init__(kernel)
        self.operators: dict[n.ScanLine, str] = {}
        # How many parallel loops are around what is printed.
        self.axis = 0

    def before(self) -> list[str]:
        # Small integers come as 32 bits, whose products overflow, and 1 as a constant.
        converted = [
            f"{parameter.name} = tl.cast({parameter.name}, {type_source('triton', parameter.dtype)})"
            for parameter in self.kernel.parameters
            if isinstance(parameter, Argument)
        ]
        return [f"lane_ = tl.arange(0, {self.kernel.lanes})", *converted]

    # Expressions

    def value(self, value: Expr, lines: list[str]) -> str:
        return self.values((value,), lines)[0]

    def values(self, values: Sequence[Expr], lines: list[str]) -> list[str]:
        names = {node: node.name for node in in_order(tuple(values)) if isinstance(node, Argument)}
        more, texts = statements("triton", tuple(values), names, f"{self.fresh()}_", "")
        lines += more
        return texts

    def scalar(self, value: Expr, lines: list[str]) -> str:
        return infix(value) or self.value(value, lines)

    def rows(self, array: n.Array, index: Expr, backwards: bool, lines: list[str]) -> str:
        return f"{array.name} + ({self.scalar(index, lines)}) {'-' if backwards else '+'} lane_"

    def typed(self, text: str, dtype: str) -> str:
        return f"({text}).to({type_source('triton', check_dtype(dtype))})"

    def stored(self, array: n.Array) -> str:
        # Bools are bytes in memory, and masks in registers.
        return "tl.int8" if array.dtype == "bool" else f"tl.{array.dtype}"

    def loaded(self, pointer: str, target: n.Register, mask: str = "") -> str:
        text = f"tl.load({pointer}{mask})"
        return f"{text} != 0" if target.dtype == "bool" else self.typed(text, target.dtype)

    # Statements

    def statement(self, statement: n.Statement, lines: list[str]) -> None:
        tile = f"({self.kernel.lanes},)"
        match statement:
            case n.Assign(targets, values):
                texts = self.values(values, lines)
                lines.append(f"{', '.join(target.name for target in targets)} = {', '.join(texts)}")
            case n.Load(target, array, index):
                pointer = f"{array.name} + {self.scalar(index, lines)}"
                if array.is_lines:
                    pointer = f"{array.name} + ({self.scalar(index, lines)}) * {self.kernel.lanes} + lane_"
                lines.append(f"{target.name} = {self.loaded(pointer, target)}")
            case n.LoadLine(target, array, index, backwards, count, fill):
                pointer = self.rows(array, index, backwards, lines)
                if count is None or fill is None:
                    lines.append(f"{target.name} = {self.loaded(pointer, target)}")
                else:
                    mask = self.fresh("mask")
                    lines.append(f"{mask} = lane_ < {self.scalar(count, lines)}")
                    found = self.loaded(pointer, target, f", mask={mask}, other=0")
                    lines.append(f"{target.name} = tl.where({mask}, {found}, {self.value(fill, lines)})")
            case n.Store(array, index, value):
                pointer = f"{array.name} + {self.scalar(index, lines)}"
                if array.is_lines:
                    pointer = f"{array.name} + ({self.scalar(index, lines)}) * {self.kernel.lanes} + lane_"
                lines.append(f"tl.store({pointer}, ({self.value(value, lines)}).to({self.stored(array)}))")
            case n.StoreLine(array, index, value, backwards, count):
                pointer = self.rows(array, index, backwards, lines)
                mask = "" if count is None else f", mask=lane_ < {self.scalar(count, lines)}"
                lines.append(f"tl.store({pointer}, ({self.value(value, lines)}).to({self.stored(array)}){mask})")
            case n.LaneNumbers(target):
                lines.append(f"{target.name} = lane_.to(tl.int64)")
            case n.Gather(target, array, places, mask, fill):
                pointer = f"{array.name} + {self.value(places, lines)}"
                if mask == Constant(True, "bool"):
                    lines.append(f"{target.name} = {self.loaded(pointer, target)}")
                else:
                    there = self.fresh("mask")
                    lines.append(f"{there} = {self.value(mask, lines)}")
                    found = self.loaded(pointer, target, f", mask={there}, other=0")
                    lines.append(f"{target.name} = tl.where({there}, {found}, {self.value(fill, lines)})")
            case n.Scatter(array, places, mask, value, adds):
                pointer = f"{array.name} + {self.value(places, lines)}"
                there = "" if mask == Constant(True, "bool") else f", mask={self.value(mask, lines)}"
                text = f"({self.value(value, lines)}).to({self.stored(array)})"
                if adds:
                    lines.append(f'tl.atomic_add({pointer}, {text}{there}, sem="relaxed")')
                else:
                    lines.append(f"tl.store({pointer}, {text}{there})")
            case n.Barrier():
                lines.append("tl.debug_barrier()")
            case n.ScanLine(targets, sources, down=down):
                several = len(targets) > 1
                names = ", ".join(target.name for target in targets)
                given = ", ".join(source.name for source in sources)
                given = f"({given})" if several else given
                lines.append(
                    f"{names} = tl.associative_scan({given}, 0, {self.operator(statement)}{', reverse=True' * down})"
                )
            case n.MoveUp(target, source, fill):
                moved = f"tl.gather({source.name}, tl.maximum(lane_ - 1, 0), 0)"
                first = f"tl.gather({fill.name}, lane_ * 0, 0)"
                lines.append(f"{target.name} = tl.where(lane_ == 0, {first}, {moved})")
            case n.LastLane(target, source):
                lines.append(f"{target.name} = tl.gather({source.name}, lane_ * 0 + {self.kernel.lanes - 1}, 0)")
            case n.FirstLane(target, source):
                # Zeros of the source's own type, so that adding them changes nothing.
                others = f"tl.zeros({tile}, {type_source('triton', target.dtype)})"
                lines.append(f"{target.name} = tl.sum(tl.where(lane_ == 0, {source.name}, {others}), 0)")
                if target.dtype == "bool":
                    lines[-1] = f"{target.name} = tl.max(tl.where(lane_ == 0, {source.name}, 0).to(tl.int32), 0) != 0"
            case n.Spread(target, value):
                lines.append(f"{target.name} = tl.broadcast_to({self.value(value, lines)}, {tile})")
            case n.Hide(target, value):
                lines.append(f"{target.name} = {self.scalar(value, lines)}")
            case n.Choose(target, condition, if_true, if_false):
                which = self.value(condition, lines)
                lines.append(f"{target.name} = tl.where({which}, {if_true.name}, {if_false.name})")
            case n.AllLanes(target, condition):
                lines.append(f"{target.name} = tl.min(({self.value(condition, lines)}).to(tl.int32), 0) != 0")
            case n.For(index, start, stop, body, down, step, parallel):
                first, last = self.scalar(start, lines), self.scalar(stop, lines)
                if parallel:
                    text = f"range({first} + tl.program_id({self.axis}), {last}, tl.num_programs({self.axis}))"
                    self.axis += 1
                    lines += [f"for {index.name} in {text}:", *indented(self.block(body))]
                    self.axis -= 1
                    return
                # Counted from zero: Triton's loops do not go down.
                turn = self.fresh("k")
                count = f"({last} - ({first}) + {step - 1}) // {step}"
                at = f"{first} + {turn} * {step}" if not down else f"{first} + ({count} - 1 - {turn}) * {step}"
                lines += [f"for {turn} in range(0, {count}):", f"    {index.name} = {at}", *indented(self.block(body))]
            case n.While(condition, body):
                text = infix(condition)
                if text is None:
                    raise UnsupportedError(f"Triton: the condition of a loop is not short enough: {condition}")
                lines += [f"while {text}:", *indented(self.block(body))]
            case n.If():
                self.branch(statement, lines)
            case n.Break() | n.Continue() | n.Return():
                raise UnsupportedError(
                    f"Triton has no `{type(statement).__name__.lower()}`", hint="write the loop with a condition"
                )
            case n.Comment(text):
                lines.append(f"# {text}")
            case n.Prefetch():
                pass

    def operator(self, statement: n.ScanLine) -> str:
        """The name of the function that combines two elements."""
        name = f"{self.kernel.name}_operator_{len(self.operators)}"
        given = [*statement.left, *statement.right]
        names = {argument: f"x{k}" for k, argument in enumerate(given)}
        lines, texts = statements("triton", statement.operator, names, "t_", "")
        for k, (value, text) in enumerate(zip(statement.operator, texts)):
            if isinstance(value, Constant):
                # A scan's operator gives tiles even where it forgets its operands.
                texts[k] = f"tl.where(x{k} == x{k}, {text}, {text})"
        header = ["@triton.jit", f"def {name}({', '.join(names.values())}):"]
        self.operators[statement] = "\n".join([*header, *indented([*lines, f"return {', '.join(texts)}"])]) + "\n"
        return name
