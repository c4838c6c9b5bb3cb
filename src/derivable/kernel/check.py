"""The validator of kernels: names, types, and which registers are lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from derivable.algebra.expr.nodes import Argument, Constant, Expr, arguments_of, as_tuple
from derivable.core.diagnostics import LayoutError, TypeMismatchError
from derivable.kernel import nodes as n

# The fields that are int64 scalars, whatever the statement.
_POSITIONS = ("index", "stride", "count", "start", "stop", "size", "words")


@cache
def _positions_of(kind: type) -> tuple[str, ...]:
    return tuple(name for name in _POSITIONS if name in n.names_of(kind))


def check(kernel: n.Kernel) -> frozenset[n.Register]:
    """Raise unless the kernel is well formed; returns the registers that are lines.

    Names are unique. A register is assigned, in the order of the text, before it is read, and is a line or a scalar
    throughout. Positions, bounds of loops and results are scalars, conditions bool scalars. Lines hold 64 bits or bools
    with 8 lanes, 32 bits or bools with 16. `break` and `continue` stand in loops.

    Raises TypeMismatchError for types, LayoutError for anything else, each with the statement.
    """
    checker = _Checker(kernel)
    checker.block(kernel.body, in_loop=False)
    counts = {len(s.values) for s in n.walk(kernel.body) if isinstance(s, n.Return)}
    if len(counts) > 1:
        raise LayoutError(f"kernel {kernel.name} returns {' and '.join(map(str, sorted(counts)))} values")
    return frozenset(register for register, is_line in checker.is_line.items() if is_line)


class _Checker:
    def __init__(self, kernel: n.Kernel):
        self.kernel = kernel
        self.arrays = set(kernel.arrays)
        self.is_line: dict[n.Register, bool] = {}
        self.names: dict[str, object] = {}
        self.known: dict[Expr, list[Argument]] = {}
        for parameter in kernel.parameters:
            self._name(parameter.name, parameter)
            if isinstance(parameter, Argument):
                self.is_line[parameter] = False

    def _name(self, name: str, owner: object) -> None:
        if self.names.setdefault(name, owner) != owner:
            raise LayoutError(f"kernel {self.kernel.name} has two things called {name!r}")

    def fail(self, statement: n.Statement, what: str, error: type = LayoutError) -> None:
        from derivable.kernel.text import _head

        raise error(f"kernel {self.kernel.name}, `{_head(statement)[-1]}`: {what}")

    def block(self, block: Iterable[n.Statement], in_loop: bool) -> None:
        for statement in block:
            self.statement(statement, in_loop)

    def statement(self, statement: n.Statement, in_loop: bool) -> None:
        for operand in n.operands_of(statement):
            self.readable(statement, operand)
        array = getattr(statement, "array", None)
        if array is not None and array not in self.arrays:
            self.fail(statement, f"{array.name} is not a parameter")
        for field in _positions_of(type(statement)):
            value = getattr(statement, field)
            for number in () if value is None else as_tuple(value):
                self.scalar(statement, number, "int64")
        match statement:
            case n.Assign(targets, values):
                for target, value in zip(targets, values, strict=True):
                    self.assign(statement, target, value.dtype, self.lines_in(value))
            case n.Load(target, array):
                self.assign(statement, target, target.dtype, array.is_lines)
            case n.Store(array, _, value):
                if self.lines_in(value) and not array.is_lines:
                    self.fail(statement, "a line does not fit one position")
            case n.LoadBit(array=array) | n.SetBit(array=array):
                if array.is_lines or not array.dtype.startswith("uint"):
                    self.fail(
                        statement, f"there are bits of unsigned integers, not of {array.dtype}", TypeMismatchError
                    )
                if isinstance(statement, n.LoadBit):
                    self.assign(statement, statement.target, "bool", False)
            case n.Hash(slot, tag):
                self.assign(statement, slot, "int64", False)
                self.assign(statement, tag, "int64", False)
            case n.LoadLine(target, count=count, fill=fill):
                if count is not None and not (isinstance(fill, Constant) and fill.dtype == target.dtype):
                    self.fail(statement, f"what fills the line is no constant of {target.dtype}", TypeMismatchError)
                self.assign(statement, target, target.dtype, True)
            case n.LoadRows(target):
                self.assign(statement, target, target.dtype, True)
            case n.StoreLine(value=value) | n.StoreRows(value=value):
                self.line(statement, value)
            case n.LaneNumbers(target):
                self.assign(statement, target, "int64", True)
            case n.Gather(places=places, mask=mask) | n.Scatter(places=places, mask=mask):
                if places.dtype != "int64" or mask.dtype != "bool":
                    self.fail(statement, "positions are int64, and the mask is bool", TypeMismatchError)
                is_line = self.lines_in(places) or self.lines_in(mask)
                if isinstance(statement, n.Gather):
                    if not (isinstance(statement.fill, Constant) and statement.fill.dtype == statement.target.dtype):
                        what = f"what fills the line is no constant of {statement.target.dtype}"
                        self.fail(statement, what, TypeMismatchError)
                    self.assign(statement, statement.target, statement.target.dtype, is_line)
                elif not is_line:
                    self.fail(statement, "the positions are no line")
            case n.Call(kernel, arguments):
                self.call(statement, kernel, arguments)
            case n.ScanLine(targets, sources, left, right, operator, neutral, _):
                if not len(targets) == len(sources) == len(left) == len(right) == len(operator) == len(neutral):
                    self.fail(statement, "the components differ in number")
                if not set(arguments_of(operator)) <= {*left, *right}:
                    self.fail(statement, "the operator reads more than its operands")
                for target, source, value in zip(targets, sources, operator):
                    self.line(statement, source)
                    self.assign(statement, target, value.dtype, True)
            case n.MoveUp(target, source) | n.LastLane(target, source) | n.FirstLane(target, source):
                self.line(statement, source)
                self.assign(statement, target, source.dtype, not isinstance(statement, n.FirstLane))
            case n.Spread(target, value):
                self.scalar(statement, value, target.dtype)
                self.assign(statement, target, value.dtype, True)
            case n.Hide(target, value):
                self.scalar(statement, value, "int64")
                self.assign(statement, target, "int64", False)
            case n.Choose(target, condition, if_true, if_false):
                self.scalar(statement, condition, "bool")
                for operand in (if_true, if_false):
                    self.scalar(statement, operand, target.dtype)
                self.assign(statement, target, target.dtype, False)
            case n.AllLanes(target, condition):
                if condition.dtype != "bool" or not self.lines_in(condition):
                    self.fail(statement, "the condition is not a line of bool", TypeMismatchError)
                self.assign(statement, target, "bool", False)
            case n.While(condition) | n.If(condition):
                self.scalar(statement, condition, "bool")
            case n.For(target, step=step):
                if step < 1:
                    self.fail(statement, "the step is not positive")
                self.assign(statement, target, "int64", False)
            case n.Return(values):
                for value in values:
                    self.scalar(statement, value, value.dtype)
            case n.Break() | n.Continue():
                if not in_loop:
                    self.fail(statement, "there is no loop around it")
        for inner in n.blocks_of(statement):
            self.block(inner, in_loop or isinstance(statement, (n.For, n.While)))

    def call(self, statement: n.Statement, kernel: n.Kernel, arguments: tuple) -> None:
        check(kernel)
        if kernel.lanes != self.kernel.lanes or any(isinstance(s, n.Return) for s in n.walk(kernel.body)):
            self.fail(statement, "the kernel has other lines or returns something")
        if len(arguments) != len(kernel.parameters):
            self.fail(statement, f"{len(arguments)} arguments for {len(kernel.parameters)} parameters")
        for argument, parameter in zip(arguments, kernel.parameters):
            if isinstance(argument, Expr) and isinstance(parameter, Argument):
                self.scalar(statement, argument, parameter.dtype)
            elif isinstance(argument, Expr) or isinstance(parameter, Argument):
                self.fail(statement, f"an array stands for the scalar {parameter.name}, or the other way round")
            elif argument not in self.arrays:
                self.fail(statement, f"{argument.name} is not a parameter")
            elif (argument.dtype, argument.is_lines) != (parameter.dtype, parameter.is_lines):
                self.fail(statement, f"{argument.name} does not fit {parameter.name}", TypeMismatchError)

    def arguments(self, value: Expr) -> Sequence[Argument]:
        """The arguments of an expression, in which statements share much."""
        if isinstance(value, (Argument, Constant)):
            return (value,) if isinstance(value, Argument) else ()
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = arguments_of(value)
        return found

    def lines_in(self, value: Expr) -> bool:
        return any(self.is_line.get(argument, False) for argument in self.arguments(value))

    def readable(self, statement: n.Statement, value: Expr) -> None:
        for argument in self.arguments(value):
            if argument not in self.is_line:
                self.fail(statement, f"{argument.name} is read before it is assigned")

    def scalar(self, statement: n.Statement, value: Expr, dtype: str) -> None:
        if value.dtype != dtype:
            self.fail(statement, f"{value} is {value.dtype}, not {dtype}", TypeMismatchError)
        if self.lines_in(value):
            self.fail(statement, f"{value} is a line where a scalar belongs")

    def line(self, statement: n.Statement, value: Expr) -> None:
        if not self.lines_in(value):
            self.fail(statement, f"{value} is a scalar where a line belongs")

    def assign(self, statement: n.Statement, target: n.Register, dtype: str, is_line: bool) -> None:
        self._name(target.name, target)
        if target.dtype != dtype:
            self.fail(statement, f"{target.name} is {target.dtype}, its value {dtype}", TypeMismatchError)
        if self.is_line.setdefault(target, is_line) != is_line:
            self.fail(statement, f"{target.name} is a line in one place and a scalar in another")
