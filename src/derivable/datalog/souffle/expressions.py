"""Soufflé's arguments as expressions of this library's syntax."""

from __future__ import annotations

from typing import Any

from derivable.core.diagnostics import BindingError, TypeMismatchError, UnsupportedError
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.selections import is_extremum
from derivable.datalog.souffle.types import NUMERIC, WORDS, ClauseTypes, Constructor, Types
from derivable.datalog.syntax import nodes as s
from derivable.datalog.values.values import ENTITY, TYPE_ALIASES, TYPES

# Functor -> function, of numbers of any type, or of whole numbers.
_CALLS = {
    "+": "wrapping_add",
    "-": "wrapping_subtract",
    "^": "wrapping_pow",
    "neg": "wrapping_negate",
    "max": "max",
    "min": "min",
    "band": "bit_and",
    "bor": "bit_or",
    "bxor": "bit_xor",
    "bnot": "bit_not",
    "land": "logical_and",
    "lor": "logical_or",
    "lxor": "logical_xor",
    "lnot": "logical_not",
    "bshl": "wrapping_shift_left",
    "bshr": "wrapping_shift_right",
    "bshru": "wrapping_shift_right_unsigned",
}
_COUNTS = {"ord": 1, "strlen": 1, "substr": 3, "to_number": 1, "to_unsigned": 1, "to_float": 1, "to_string": 1}
_WHOLE = {"band", "bor", "bxor", "bnot", "land", "lor", "lxor", "lnot", "bshl", "bshr", "bshru"}


class Expressions:
    """The expressions of one program; `functors` are the names of the functions that its functors call.

    bits  of a word: 32 or 64
    """

    def __init__(self, types: Types, bits: int, functors: dict[str, str]):
        self.types, self.bits, self.functors = types, bits, functors
        self.words = WORDS[bits]

    def type_name(self, base: str) -> str:
        """The name here of a primitive type, record or sum."""
        return self.words.get(base) or self.data_type(base)

    def data_type(self, base: str) -> str:
        name = base.replace("?", "_")
        return f"{name}'" if name in (*TYPES, *TYPE_ALIASES, ENTITY.name) else name

    def nil(self, record: str) -> str:
        return self.types.nils[record]

    # Arguments

    def value(self, node: n.Argument, typed: ClauseTypes, wanted: str | None = None) -> Any:
        """The expression of an argument of which all is known."""
        span = node.span
        match node:
            case n.Variable(name=name):
                return s.Variable(name, span=span)
            case n.Unnamed():
                return s.Wildcard(span=span)
            case n.Literal():
                return self.literal(node, wanted)
            case n.Nil() | n.Record() | n.Branch():
                constructor, arguments, fields = self.structure(node, wanted)
                parts = tuple(self.value(a, typed, t) for a, t in zip(arguments, fields))
                return s.New(constructor, parts, span=span)
            case n.As(operand=operand, type_name=type_name):
                return self.as_type(node, operand, self.types.resolved(type_name, span), typed)
            case n.UserFunctor(name=name, arguments=arguments):
                return self.user_functor(node, typed)
            case n.Functor():
                return self.functor(node, typed, wanted)
        raise self.types.error(UnsupportedError, "this cannot stand here", span)

    def pattern(self, node: n.Argument, typed: ClauseTypes, wanted: str, extra: list[Any], names: Any) -> Any:
        """The pattern of an argument whose variables may be bound by it; what must be equal to a part is added to
        `extra`."""
        match node:
            case n.Nil() | n.Record() | n.Branch():
                constructor, arguments, fields = self.structure(node, wanted)
                parts = []
                for argument, t in zip(arguments, fields):
                    if isinstance(argument, (n.Functor, n.UserFunctor, n.As)):
                        name = names.fresh("f")
                        value = self.value(argument, typed, t)
                        extra.append(s.Binary("==", s.Variable(name, span=argument.span), value, span=argument.span))
                        parts.append(s.Variable(name, span=argument.span))
                    else:
                        parts.append(self.pattern(argument, typed, t, extra, names))
                return s.Atom(constructor, tuple(parts), span=node.span)
            case n.As(operand=n.Record() | n.Branch() | n.Nil() as operand, type_name=type_name):
                return self.pattern(operand, typed, self.types.resolved(type_name, node.span), extra, names)
        return self.value(node, typed, wanted)

    def literal(self, node: n.Literal, wanted: str | None) -> Any:
        if wanted is not None and node.kind != "integer" and node.kind != wanted and wanted in self.words:
            message = f"this is of the type {node.kind}, and {wanted} is wanted here"
            hint = "convert it with `to_number`, `to_float` or `to_string`" if node.kind == "symbol" else None
            raise self.types.error(TypeMismatchError, message, node.span, hint)
        if node.kind == "integer" and wanted == "symbol":
            message = "this is a number, and a symbol is wanted here"
            raise self.types.error(TypeMismatchError, message, node.span, f'write `"{node.value}"`')
        if node.kind == "symbol":
            return s.Constant(node.value, "text", span=node.span)
        if node.kind == "float" or wanted == "float":
            return s.Constant(float(node.value), "float", span=node.span)
        constant = s.Constant(node.value, "integer", span=node.span)
        if wanted == "unsigned" and node.value < 0:
            return s.Constant(node.value % (1 << self.bits), "integer", span=node.span)
        if (node.kind == "unsigned" and wanted is None) or (wanted is None and not -(1 << 31) <= node.value < 1 << 31):
            # A function says of what type the literal is.
            word = self.words["unsigned" if node.kind == "unsigned" else "number"]
            return self.call(f"literal_{word}", constant, span=node.span)
        return constant

    def structure(self, node: n.Argument, wanted: str | None) -> tuple[str, tuple[n.Argument, ...], tuple[str, ...]]:
        """(constructor, arguments, types of the fields) of a record, a branch or `nil`."""
        if isinstance(node, n.Branch):
            _, constructor = self.types.branch(node, wanted)
            self.check_count(node, node.arguments, constructor)
            return constructor.name, node.arguments, constructor.fields
        if wanted not in self.types.records:
            message = "nothing says of which type this record is"
            hint = "say it: `as([x, y], T)`"
            if wanted is not None:
                message, hint = f"this is a record, and the type here is {wanted}", None
            raise self.types.error(TypeMismatchError, message, node.span, hint)
        if isinstance(node, n.Nil):
            return self.nil(wanted), (), ()
        assert isinstance(node, n.Record)
        constructor = self.types.records[wanted]
        self.check_count(node, node.arguments, constructor)
        return constructor.name, node.arguments, constructor.fields

    def check_count(self, node: n.Argument, arguments: tuple[n.Argument, ...], constructor: Constructor) -> None:
        if len(arguments) != len(constructor.fields):
            what = f"`${constructor.branch}`" if constructor.branch else "the record"
            count = len(constructor.fields)
            message = f"{what} has {count} field{'s' if count != 1 else ''}, {len(arguments)} given"
            raise self.types.error(TypeMismatchError, message, node.span)

    # Functors

    def call(self, name: str, *arguments: Any, span: n.Span) -> s.Call:
        return s.Call(name, arguments, span=span)

    def as_type(self, node: n.As, operand: n.Argument, target: str, typed: ClauseTypes) -> Any:
        source = typed.argument(operand) or (target if isinstance(operand, n.TERMS) else "number")
        if source == target or (target in NUMERIC and isinstance(operand, n.Literal) and operand.kind == "integer"):
            return self.value(operand, typed, target)
        value = self.value(operand, typed, None if isinstance(operand, n.Literal) else source)
        if {source, target} == {"number", "unsigned"}:
            return self.call(f"wrapping_{self.words[target]}", value, span=node.span)
        if target in ("number", "unsigned") and source != "float":
            return self.ordinal(value, target, node.span)
        message = f"a value of the type {source} has no {target} here: values are not kept as bits"
        hint = "convert it with `to_number`, `to_float` or `to_string`"
        raise self.types.error(UnsupportedError, message, node.span, hint)

    def ordinal(self, value: Any, target: str, span: n.Span) -> Any:
        number = self.call("symbol_number", value, span=span)
        return self.call(f"wrapping_{self.words[target]}", number, span=span)

    def user_functor(self, node: n.UserFunctor, typed: ClauseTypes) -> Any:
        declared = self.types.functors[node.name]
        if len(declared.parameters) != len(node.arguments):
            message = f"`@{node.name}` takes {len(declared.parameters)} arguments, {len(node.arguments)} given"
            raise self.types.error(TypeMismatchError, message, node.span)
        if node.name not in self.functors:
            hint = f'give the Python function: functors={{"{node.name}": f}}, or with --python FILE.py'
            raise self.types.error(BindingError, f"the functor `@{node.name}` is not known", node.span, hint)
        types = [self.types.resolved(parameter, declared.span) for parameter in declared.parameters]
        arguments = (self.value(a, typed, t) for a, t in zip(node.arguments, types))
        return self.call(self.functors[node.name], *arguments, span=node.span)

    def functor(self, node: n.Functor, typed: ClauseTypes, wanted: str | None) -> Any:
        name, arguments, span = node.name, node.arguments, node.span
        if name in _COUNTS and len(arguments) != _COUNTS[name]:
            count = _COUNTS[name]
            message = f"`{name}` takes {count} argument{'s' if count != 1 else ''}, {len(arguments)} given"
            raise self.types.error(TypeMismatchError, message, span)
        if name == "cat":
            return self.call("string_concat", *(self.value(a, typed, "symbol") for a in arguments), span=span)
        if name == "substr":
            text = self.value(arguments[0], typed, "symbol")
            numbers = (self.value(a, typed, "number") for a in arguments[1:])
            return self.call("byte_substring", text, *numbers, span=span)
        if name == "strlen":
            length = self.call("string_length", self.value(arguments[0], typed, "symbol"), span=span)
            return s.Cast(length, self.words[wanted if wanted in NUMERIC else "number"], span=span)
        if name in ("to_number", "to_unsigned", "to_float", "to_string", "ord"):
            return self.converted(node, typed, wanted)
        if is_extremum(node):
            hint = f"an aggregate is `{name} x : {{ p(x) }}`, and `{name}(x, y)` takes two values"
            raise self.types.error(TypeMismatchError, f"`{name}` of one value stands in heads alone", span, hint)
        type_name = typed.argument(node, wanted if wanted in (*NUMERIC, "symbol") else None) or "number"
        if type_name not in NUMERIC and name not in ("+", "max", "min"):
            shown = {"neg": "-"}.get(name, name)
            raise self.types.error(
                TypeMismatchError, f"`{shown}` is for numbers, this is of the type {type_name}", span
            )
        if type_name not in (*NUMERIC, "symbol"):
            raise self.types.error(TypeMismatchError, f"`{name}` is for numbers and symbols, not for {type_name}", span)
        if type_name == "float" and name in _WHOLE:
            raise self.types.error(TypeMismatchError, f"`{name}` is for whole numbers, not for floats", span)
        parts = [self.value(a, typed, type_name) for a in arguments]
        if type_name == "symbol" and name == "+":
            return self.call("string_concat", *parts, span=span)
        if name in ("*", "/", "%"):
            return s.Binary(name, *parts, span=span)
        if type_name == "symbol" and name in ("max", "min"):
            return self.extremum(name, parts, span)
        return self.call(_CALLS[name], *parts, span=span)

    def extremum(self, name: str, parts: list[Any], span: n.Span) -> Any:
        """The largest or smallest of some symbols."""
        best = parts[0]
        for part in parts[1:]:
            is_better = s.Binary("<" if name == "min" else ">", part, best, span=span)
            best = s.Conditional(is_better, part, best, span=span)
        return best

    def converted(self, node: n.Functor, typed: ClauseTypes, wanted: str | None) -> Any:
        """`to_number(x)`, `to_string(x)`, ..., `ord(x)`."""
        [argument], span = node.arguments, node.span
        source = typed.argument(argument) or "number"
        value = self.value(argument, typed, None if isinstance(argument, n.Literal) else source)
        if node.name == "ord":
            target = wanted if wanted in NUMERIC and wanted != "float" else "number"
            return value if source in NUMERIC else self.ordinal(value, target, span)
        target = node.name.removeprefix("to_")
        if source not in (*NUMERIC, "symbol"):
            raise self.types.error(TypeMismatchError, f"`{node.name}` is for numbers and symbols", span)
        if target == "string":
            if source == "symbol":
                return value
            return (
                self.call("decimal_text", value, span=span) if source == "float" else s.Cast(value, "String", span=span)
            )
        if source == "symbol":
            return self.call(f"parse_{self.words[target]}", value, span=span)
        if {source, target} == {"number", "unsigned"}:
            return self.call(f"wrapping_{self.words[target]}", value, span=span)
        return value if source == target else s.Cast(value, self.words[target], span=span)
