"""The types of expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from derivable.core.diagnostics import BindingError, TypeMismatchError, UnsupportedError
from derivable.core.registry import suggestion
from derivable.datalog.foreign.signature import Kind, Signature
from derivable.datalog.foreign.standard import FUNCTIONS
from derivable.datalog.syntax import nodes as s
from derivable.datalog.types.data_types import DataTypes
from derivable.datalog.types.unification import Open, Type
from derivable.datalog.values import BOOL, DATETIME, DURATION, TYPES, ValueType

_MADE_KNOWN = "`derivable.datalog.function` makes a Python function known"


class Expressions(DataTypes):
    """Types each expression node, by identity, in `of`."""

    def tag(self, tag: Any) -> None:
        self.tags.append((tag, self.expression(tag)))

    def expression(self, node: Any) -> Type:
        t = self.of[id(node)] = self._expression(node)
        return t

    def _expression(self, node: Any) -> Type:
        match node:
            case s.Constant(value=value, kind="term"):
                return self.constant_term(value, node.span)
            case s.Constant(kind=kind):
                t = self.literal(kind)
                self.literals.append((node, t))
                return t
            case s.Variable(name=name):
                if name in self.constants and name not in self.scope:
                    return self.constants[name][1]
                return self.scope.setdefault(name, Open())
            case s.Wildcard():
                return Open()
            case s.Unary(operator=operator, operand=a):
                t = self.expression(a)
                if operator == "!":
                    self.unify(t, BOOL, a.span, "`!`")
                else:
                    self.require(t, "number", a.span, f"`{operator}`")
                return t
            case s.Binary(operator=operator, left=a, right=b):
                return self.binary(node, operator, a, b)
            case s.Conditional(condition=c, then=a, otherwise=b):
                self.unify(self.expression(c), BOOL, c.span, "the condition of `if`")
                t = self.expression(a)
                self.unify(self.expression(b), t, b.span, "the other branch")
                return t
            case s.Cast(operand=a, type_name=name):
                self.expression(a)
                self.casts.append(node)
                return self.named_type(name, node.span)
            case s.Call(name=name, arguments=arguments):
                return self.call(node, name, arguments)
            case s.New():
                return self.term(node)
            case s.Atom(relation=name) if name in self.constructors or (self.constructors and name not in self.columns):
                return self.term(node)
            case s.Atom(relation=name):
                message = f"the atom `{name}(...)` stands where a value is expected"
                hint = "an atom is a formula: write it in the body, joined by `and`, `or` or `not`"
                self.error(TypeMismatchError, message, node.span, hint)
            case s.Aggregate(operator=name):
                self.error(
                    TypeMismatchError,
                    f"the aggregate `{name}` stands where a value is expected",
                    node.span,
                    f"assign it in the body first: `n := {name}(...)`",
                )
        return self.error(TypeMismatchError, "a formula stands where a value is expected", node.span)

    def literal(self, kind: str) -> Type:
        """The type of a literal of a kind."""
        known = {"bool": BOOL, "char": TYPES["char"], "symbol": TYPES["Symbol"]}
        known |= {"datetime": DATETIME, "duration": DURATION}
        return known.get(kind) or Open("number" if kind == "integer" else kind)

    def declare_functions(self) -> None:
        """The types that the program gives to functions of Python."""
        for item in self.syntax.items:
            if not isinstance(item, s.FunctionType):
                continue
            name = item.name
            if name in self.functions:
                self.error(BindingError, f"the function `${name}` is declared twice", item.span)
            if name not in FUNCTIONS:
                # A library may declare functions that a program does not use.
                columns = tuple(self.named_type(column.type_name, column.span) for column in item.parameters)
                self.functions[name] = Signature(columns, (self.named_type(item.result, item.span),))
                continue
            found = FUNCTIONS[name].signature
            kinds = found.kinds(len(item.parameters))
            if kinds is None:
                message = f"`${name}` takes {found.counts()}, {len(item.parameters) or 'none'} declared"
                self.error(TypeMismatchError, message, item.span, f"in Python it is `${name}{found}`")
            generics = self.generics(found)
            parameters = []
            for i, (column, kind) in enumerate(zip(item.parameters, kinds)):
                if column.adornment is not None:
                    self.error(TypeMismatchError, f"a parameter is not `{column.adornment}`", column.span)
                parameters.append(self.named_type(column.type_name, column.span))
                place = f"parameter {i + 1} of `${name}` in Python"
                self.unify(parameters[-1], self.opened(kind, generics), column.span, place)
            result = self.named_type(item.result, item.span)
            self.unify(result, self.opened(found.results[0], generics), item.span, f"the result of `${name}` in Python")
            self.functions[name] = Signature(tuple(parameters), (result,))

    def call(self, node: s.Call, name: str, arguments: tuple[Any, ...]) -> Type:
        if name not in FUNCTIONS:
            message = f"unknown function `${name}`"
            if name in self.functions:
                message = f"`${name}` is declared, but there is no such function in Python"
            self.error(UnsupportedError, message, node.span, suggestion(name, FUNCTIONS, _MADE_KNOWN, "$"))
        found = self.functions.get(name) or FUNCTIONS[name].signature
        kinds = found.kinds(len(arguments))
        if kinds is None:
            verb = "is" if len(arguments) == 1 else "are"
            message = f"`${name}` takes {found.counts()}, {len(arguments) or 'none'} {verb} given"
            self.error(TypeMismatchError, message, node.span, f"it is `${name}{found}`")
        generics = self.generics(found)
        for i, (argument, kind) in enumerate(zip(arguments, kinds)):
            place = "the parameter" if len(arguments) == 1 else f"parameter {i + 1}"
            self.unify(self.expression(argument), self.opened(kind, generics), argument.span, f"{place} of `${name}`")
        return self.opened(found.results[0], generics)

    def generics(self, found: Signature) -> dict[str, Open]:
        """The generic types of one use of a function or predicate."""
        return {name: Open(family) for name, family in found.generics}

    def opened(self, kind: Kind, generics: Mapping[str, Open]) -> Type:
        """The type of an argument or result of a kind."""
        return kind if isinstance(kind, ValueType) else generics.get(kind) or Open(kind)

    def binary(self, node: s.Binary, operator: str, a: Any, b: Any) -> Type:
        left = self.expression(a)
        right = self.expression(b)
        if operator in ("&&", "||", "^"):
            self.unify(left, BOOL, a.span, f"`{operator}`")
            self.unify(right, BOOL, b.span, f"`{operator}`")
            return BOOL
        if operator in ("==", "!=", "<", "<=", ">", ">="):
            self.unify(right, left, b.span, f"the left side of `{operator}`")
            if operator not in ("==", "!="):
                self.require(left, "ordered", node.span, f"`{operator}`")
            return BOOL
        return self.arithmetic(node, left, right)
