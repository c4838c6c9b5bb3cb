"""The types of expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from derivable.core.diagnostics import BindingError, Span, UnsupportedError
from derivable.core.registry import suggestion
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.foreign.other_names import written_here
from derivable.datalog.foreign.signature import Kind, Signature
from derivable.datalog.foreign.standard import FUNCTIONS
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.text import expression_text
from derivable.datalog.types.data_types import DataTypes
from derivable.datalog.types.mixed import ARITHMETIC
from derivable.datalog.types.unification import FAMILIES, Open, Type
from derivable.datalog.values.values import BOOL, DATETIME, DURATION, F64, TYPES, ValueType

_MADE_KNOWN = "`derivable.datalog.function` makes a Python function known"


class Expressions(DataTypes):
    """Types each expression node, by identity, in `of`."""

    def tag(self, node: Any) -> None:
        """Type a tag, whose arithmetic is that of real numbers whatever it is about: 1 / 6 is no integer there."""
        self.real.add(id(node))
        match node:
            case s.Constant(kind="integer" | "float"):
                self.of[id(node)] = F64
            case s.Unary(operator="-", operand=a):
                self.tag(a)
                self.of[id(node)] = F64
            case s.Binary(operator=operator, left=a, right=b) if operator in ARITHMETIC:
                self.tag(a)
                self.tag(b)
                self.of[id(node)] = F64
            case s.Conditional(condition=c, then=a, otherwise=b):
                self.unify(self.expression(c), BOOL, c.span, "the condition of `if`")
                self.tag(a)
                self.tag(b)
                self.of[id(node)] = F64
            case s.Call(name=name, arguments=arguments) if kinds := self._kinds_of_real(name, len(arguments)):
                for argument, kind in zip(arguments, kinds):
                    if isinstance(kind, ValueType):
                        self.unify(self.expression(argument), kind, argument.span, f"a parameter of `${name}`")
                    else:
                        self.tag(argument)
                self.of[id(node)] = F64
            case _:
                self.tags.append((node, self.expression(node)))

    def _kinds_of_real(self, name: str, count: int) -> Sequence[Kind] | None:
        """The kinds of the parameters of a function of numbers of any type, that gives such; None for others."""
        if name not in FUNCTIONS or name in self.functions:
            return None
        signature = FUNCTIONS[name].signature
        families, kinds = dict(signature.generics), signature.kinds(count)
        if kinds is None or signature.results[0] not in families:
            return None
        opened = [
            families.get(kind, kind) if isinstance(kind, str) else kind for kind in (*kinds, signature.results[0])
        ]
        is_real = all(isinstance(k, ValueType) or (k in FAMILIES and "float" in FAMILIES[k].members) for k in opened)
        return kinds if is_real else None

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
            case s.Unary(operator="!", operand=s.Atom(relation=name) as a) if name not in self.constructors:
                message = f"`!` is for bools, and `{name}(...)` is an atom"
                return self.mismatch(message, node.span, f"write `not {expression_text(a)}`")
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
                self.mismatch(message, node.span, self.function_meant(node) or hint)
            case s.Aggregate(operator=name):
                self.mismatch(
                    f"the aggregate `{name}` stands where a value is expected",
                    node.span,
                    f"assign it in the body first: `n := {name}(...)`",
                )
        return self.mismatch("a formula stands where a value is expected", node.span)

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
            signature = FUNCTIONS[name].signature
            kinds = signature.kinds(len(item.parameters))
            if kinds is None:
                message = f"`${name}` takes {signature.counts()}, {len(item.parameters) or 'none'} declared"
                self.mismatch(message, item.span, f"in Python it is `${name}{signature}`")
            generics = self.generics(signature)
            parameters = []
            for i, (column, kind) in enumerate(zip(item.parameters, kinds)):
                if column.adornment is not None:
                    self.mismatch(f"a parameter is not `{column.adornment}`", column.span)
                parameters.append(self.named_type(column.type_name, column.span))
                what = f"parameter {i + 1} of `${name}` in Python"
                self.unify(parameters[-1], self.opened(kind, generics), column.span, what)
            result = self.named_type(item.result, item.span)
            self.unify(
                result, self.opened(signature.results[0], generics), item.span, f"the result of `${name}` in Python"
            )
            self.functions[name] = Signature(tuple(parameters), (result,))

    def call(self, node: s.Call, name: str, arguments: tuple[Any, ...]) -> Type:
        if name not in FUNCTIONS:
            message = f"unknown function `${name}`"
            if name in self.functions:
                message = f"`${name}` is declared, but there is no such function in Python"
            hint = suggestion(name, FUNCTIONS, _MADE_KNOWN, "$")
            if name not in self.functions:
                hint = written_here(name, [*map(expression_text, arguments)]) or hint
            self.error(UnsupportedError, message, node.span, hint)
        signature = self.functions.get(name) or FUNCTIONS[name].signature
        kinds = signature.kinds(len(arguments))
        if kinds is None:
            verb = "is" if len(arguments) == 1 else "are"
            message = f"`${name}` takes {signature.counts()}, {len(arguments) or 'none'} {verb} given"
            self.mismatch(message, node.span, f"it is `${name}{signature}`")
        generics = self.generics(signature)
        for i, (argument, kind) in enumerate(zip(arguments, kinds)):
            what = "the parameter" if len(arguments) == 1 else f"parameter {i + 1}"
            self.unify(self.expression(argument), self.opened(kind, generics), argument.span, f"{what} of `${name}`")
        return self.opened(signature.results[0], generics)

    def generics(self, signature: Signature) -> dict[str, Open]:
        """The generic types of one use of a function or predicate."""
        return {name: Open(family) for name, family in signature.generics}

    def opened(self, kind: Kind, generics: Mapping[str, Open]) -> Type:
        """The type of an argument or result of a kind."""
        return kind if isinstance(kind, ValueType) else generics.get(kind) or Open(kind)

    def function_meant(self, node: s.Atom) -> str | None:
        """How a function is written whose call looks like an atom."""
        name, arguments = node.relation, ", ".join(map(expression_text, node.arguments))
        if name in self.defined_names:
            return None
        here = None if name in FUNCTIONS else written_here(name, [*map(expression_text, node.arguments)])
        if here is not None:
            return here
        if name in AGGREGATES and (name not in FUNCTIONS or len(node.arguments) < 2):
            return f"assign the aggregate in the body: `n := {name}({arguments}: p({arguments}))`"
        return f"functions begin with `$`: write `${name}({arguments})`" if name in FUNCTIONS else None

    def not_an_atom(self, node: s.Binary) -> None:
        """Say what joins atoms, where one is an operand of an operator of bools or numbers."""
        atom = next((a for a in (node.left, node.right) if isinstance(a, s.Atom)), None)
        if atom is None or atom.relation in self.constructors or self.function_meant(atom) is not None:
            return
        left, right = map(expression_text, (node.left, node.right))
        hints = {"&&": f"write `{left} and {right}`", "||": f"write `{left} or {right}`"}
        hints["%"] = "comments are `// ...` to the end of the line"
        if node.operator in hints:
            message = f"`{node.operator}` is for {'numbers' if node.operator == '%' else 'bools'},"
            span = self.operator_span(node)
            self.mismatch(f"{message} and `{atom.relation}(...)` is an atom", span, hints[node.operator])

    def operator_span(self, node: s.Binary) -> Span:
        """Where the operator stands, if that is on the line on which its left operand ends."""
        left, right = node.left.span, node.right.span
        if left.line != right.line:
            return node.span
        text = left.origin.text if left.origin else self.syntax.text
        between = text.split("\n")[left.line - 1][left.column + left.length - 1 : right.column - 1]
        match = between.find(node.operator)
        column = left.column + left.length + max(match, 0)
        return node.span if match < 0 else replace(left, column=column, length=len(node.operator))

    def binary(self, node: s.Binary, operator: str, a: Any, b: Any) -> Type:
        self.not_an_atom(node)
        left = self.expression(a)
        right = self.expression(b)
        if operator == "^" and not (self.may_be(left, BOOL) and self.may_be(right, BOOL)):
            hint = "for a power write `$pow(x, 2)`, or `$powf(x, 2.0)` for floats"
            self.mismatch("`^` is the exclusive or of bools", self.operator_span(node), hint)
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
