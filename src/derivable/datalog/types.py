"""Types: from syntax to the type of every relation column and every expression.

Unification over one program. A literal starts as a family ("integer", "float", "text") and takes the type of the
column or variable it meets; what stays open defaults to i32 (integers and unknowns), f32 (floats), String (texts).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from derivable.core.diagnostics import (
    BindingError,
    DerivableError,
    Span,
    TypeMismatchError,
    UnsupportedError,
)
from derivable.core.registry import suggestion
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.foreign import FUNCTIONS
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.nodes import LATER_AGGREGATES
from derivable.datalog.syntax.text import expression_text
from derivable.datalog.values import BOOL, F32, I32, STRING, TYPE_ALIASES, TYPES, UNSUPPORTED_TYPES, USIZE, ValueType

FOREIGN_PREDICATES = (
    "range", "float_eq", "soft_eq", "soft_neq", "soft_gt", "soft_lt", "string_chars", "string_index", "string_find",
    "string_split", "datetime_ymd", "tensor_shape", "new_tag_variable",
)  # fmt: skip

# What an open type may become, from loose to strict.
_FAMILIES = {
    "any": ("signed", "unsigned", "float", "bool", "char", "text"),
    "number": ("signed", "unsigned", "float"),
    "addable": ("signed", "unsigned", "float", "text"),
    "integer": ("signed", "unsigned"),
    "float": ("float",),
    "text": ("text",),
    "bool": ("bool",),
}
_DEFAULTS = {"any": I32, "number": I32, "addable": I32, "integer": I32, "float": F32, "text": STRING, "bool": BOOL}
_FAMILY_NAMES = {
    "any": "unknown",
    "number": "a number",
    "addable": "a number or text",
    "integer": "an integer",
    "float": "a float",
    "text": "a text",
    "bool": "a bool",
}


@dataclass(eq=False)
class Open:
    """A type not yet known: a family, or a link to what it was unified with."""

    family: str = "any"
    link: Open | ValueType | None = None
    why: str = ""


Type = Open | ValueType


def resolve(t: Type) -> Type:
    """Follow links to the representative, and shorten them, so that long chains of rules stay cheap."""
    found = t
    while isinstance(found, Open) and found.link is not None:
        found = found.link
    while isinstance(t, Open) and t.link is not None:
        t.link, t = found, t.link
    return found


def _meet(a: str, b: str) -> str | None:
    common = set(_FAMILIES[a]) & set(_FAMILIES[b])
    for family, members in _FAMILIES.items():
        if set(members) == common:
            return family
    return None


@dataclass(frozen=True)
class RelationSignature:
    """`edge(src: usize, dst: usize)`: resolved types; `is_declared` by `type`, `is_defined` by facts or rules."""

    name: str
    types: tuple[ValueType, ...]
    column_names: tuple[str | None, ...]
    is_declared: bool
    is_defined: bool
    span: Span

    def __str__(self) -> str:
        shown = [f"{n}: {t}" if n else str(t) for n, t in zip(self.column_names, self.types)]
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class Typed:
    """A program with types: the syntax, the signatures, the type of each expression node (by identity).

    constants  named constants and enum members: name -> (value, type)
    """

    syntax: s.Syntax
    relations: Mapping[str, RelationSignature]
    constants: Mapping[str, tuple[Any, ValueType]]
    _of: Mapping[int, ValueType] = field(repr=False)
    _variables: Mapping[int, Mapping[str, ValueType]] = field(repr=False)
    aliases: Mapping[str, ValueType] = field(default_factory=dict)

    def of(self, node: Any) -> ValueType:
        """The type of an expression node of this program."""
        return self._of[id(node)]

    def variables(self, node: Any) -> Mapping[str, ValueType]:
        """The types of the variables of a rule or query, or of the local variables of an aggregate."""
        return self._variables.get(id(node), {})


def types_text(typed: Typed) -> str:
    """The printer: one signature a line."""
    rows = [f"type {typed.relations[name]}" for name in typed.relations]
    rows += [f"const {name}: {t} = {value}" for name, (value, t) in typed.constants.items()]
    return "\n".join(rows)


def _valued(value: Any, t: ValueType) -> Any:
    """A literal's value in its type: integers are floats where a float is wanted."""
    return float(value) if t.family == "float" else value


def infer(syntax: s.Syntax, hints: Mapping[str, tuple[str, ...]] | None = None) -> Typed:
    """Infer all types. `hints` gives families for the columns of relations that only Python facts define.

    Raises TypeMismatchError (arity or type clash), BindingError (duplicate declaration), UnsupportedError.
    """
    return _Inference(syntax, hints or {}).run()


class _Inference:
    def __init__(self, syntax: s.Syntax, hints: Mapping[str, tuple[str, ...]]):
        self.syntax = syntax
        self.hints = hints
        self.types: dict[str, ValueType] = dict(TYPES)
        self.named: dict[str, Span] = {}
        self.columns: dict[str, list[Type]] = {}
        self.names: dict[str, tuple[str | None, ...]] = {}
        self.first_use: dict[str, Span] = {}
        self.declared: dict[str, Span] = {}
        self.defined: set[str] = set()
        self.constants: dict[str, tuple[Any, Type]] = {}
        self.of: dict[int, Type] = {}
        self.scope: dict[str, Type] = {}
        self.variables: dict[int, dict[str, Type]] = {}
        self.literals: list[tuple[s.Constant, Type]] = []
        self.casts: list[s.Cast] = []

    def error(self, kind: type[DerivableError], message: str, span: Span, hint: str | None = None) -> NoReturn:
        raise kind(message, hint=hint, source=self.syntax.source, text=self.syntax.text, span=span)

    # Items

    def run(self) -> Typed:
        for item in self.syntax.items:
            self.declare(item)
        for name, families in self.hints.items():
            self.relation(name, len(families), s.NOWHERE)
            for column, family in zip(self.columns[name], families):
                open_type = resolve(column)
                if name not in self.declared and isinstance(open_type, Open):
                    open_type.family = _meet(open_type.family, family) or open_type.family
        for item in self.syntax.items:
            self.item(item)
        return self.finish()

    def declare(self, item: s.Item) -> None:
        match item:
            case s.AliasType(name=name, type_name=target):
                self.new_name(name, item.span)
                self.types[name] = self.named_type(target, item.span)
            case s.EnumType(name=name, members=members):
                self.new_name(name, item.span)
                self.types[name] = USIZE
                following = 0
                taken: dict[int, str] = {}
                for member, value in members:
                    self.new_name(member, item.span)
                    following = following if value is None else value
                    if following in taken:
                        self.error(
                            BindingError,
                            f"`{member}` has the value {following} of `{taken[following]}`",
                            item.span,
                            "the members of an enum have different values; one without its own follows the one before",
                        )
                    taken[following] = member
                    self.constants[member] = (following, USIZE)
                    following += 1
            case s.RelationType(name=name, columns=columns):
                if name in self.declared:
                    self.error(
                        BindingError,
                        f"relation `{name}` is declared twice",
                        item.span,
                        f"the first declaration is on line {self.declared[name].line}",
                    )
                self.declared[name] = item.span
                self.columns[name] = [self.named_type(c.type_name, c.span) for c in columns]
                self.names[name] = tuple(c.name for c in columns)
            case s.ConstantItem(name=name, type_name=type_name, value=value):
                self.new_name(name, item.span)
                if not isinstance(value, s.Constant):
                    self.error(UnsupportedError, f"the constant `{name}` must be a literal", value.span)
                t = self.expression(value)
                if type_name is not None:
                    self.unify(t, self.named_type(type_name, item.span), value.span, f"the declared type of `{name}`")
                self.constants[name] = (value.value, t)

    def new_name(self, name: str, span: Span) -> None:
        if name in self.named or name in TYPES:
            hint = f"the first declaration is on line {self.named[name].line}" if name in self.named else None
            self.error(
                BindingError, f"`{name}` is declared twice" if hint else f"`{name}` is a built-in type", span, hint
            )
        self.named[name] = span

    def named_type(self, name: str, span: Span) -> ValueType:
        name = TYPE_ALIASES.get(name, name)
        if name in self.types:
            return self.types[name]
        if name in UNSUPPORTED_TYPES:
            self.error(UnsupportedError, f"the type {name} is not supported yet", span)
        hint = suggestion(name, self.types, "declare it with `type`")
        return self.error(TypeMismatchError, f"unknown type `{name}`", span, hint)

    def relation(self, name: str, arity: int, span: Span) -> list[Type]:
        """The column types of a relation used with `arity` columns at `span`."""
        if name not in self.columns:
            self.columns[name] = [Open() for _ in range(arity)]
            self.names[name] = (None,) * arity
            self.first_use[name] = span
        columns = self.columns[name]
        if len(columns) != arity:
            place = self.declared.get(name) or self.first_use[name]
            verb = "declared" if name in self.declared else "first used"
            self.error(
                TypeMismatchError,
                f"`{name}` has {len(columns)} column{'s' if len(columns) != 1 else ''}, but is used with {arity} here",
                span,
                f"it is {verb} on line {place.line}",
            )
        return columns

    def item(self, item: s.Item) -> None:
        self.scope = {}
        match item:
            case s.FactSet(relation=name, facts=facts):
                self.defined.add(name)
                for fact in facts:
                    columns = self.relation(name, len(fact.arguments), fact.span)
                    self.arguments(name, fact.arguments, columns)
                    if fact.tag is not None:
                        self.expression(fact.tag)
            case s.Rule(heads=heads, body=body, tag=tag):
                for head in heads:
                    self.defined.add(head.relation)
                    self.atom(head)
                if body is not None:
                    self.formula(body)
                if tag is not None:
                    self.tag(tag)
            case s.ReduceRule(relation=name, aggregate=aggregate):
                self.defined.add(name)
                self.reduce_rule(item, aggregate)
            case s.Query(relation=name, arguments=arguments):
                if arguments is not None:
                    self.arguments(name, arguments, self.relation(name, len(arguments), item.span))
                elif name not in self.columns:
                    self.first_use.setdefault(name, item.span)
            case _:
                return
        self.variables[id(item)] = self.scope

    def reduce_rule(self, item: s.ReduceRule, aggregate: s.Aggregate) -> None:
        result = self.aggregate(aggregate)
        group = list(aggregate.group)
        columns = self.relation(item.relation, len(group) + len(result), item.span)
        for column, name in zip(columns, group):
            self.unify(self.scope[name], column, item.span, f"a column of `{item.relation}`")
        for column, t in zip(columns[len(group) :], result):
            self.unify(t, column, item.span, f"a column of `{item.relation}`")

    # Formulas

    def formula(self, node: Any) -> None:
        match node:
            case s.Atom():
                self.atom(node)
            case s.Not() | s.Conjunction() | s.Disjunction() | s.Implies() | s.Tuple():
                for child in s.children(node):
                    self.formula(child)
            case s.Aggregate():
                result = self.aggregate(node)
                outputs = node.outputs
                if outputs is None:
                    if node.operator not in ("exists", "forall"):
                        self.error(
                            TypeMismatchError,
                            f"the result of `{node.operator}` is not used",
                            node.span,
                            f"assign it: `n := {node.operator}(...)`",
                        )
                    return
                if len(outputs) != len(result):
                    self.error(
                        TypeMismatchError,
                        f"`{node.operator}` gives {len(result)} value{'s' if len(result) != 1 else ''},"
                        f" but {len(outputs)} {'are' if len(outputs) != 1 else 'is'} assigned",
                        node.span,
                    )
                for output, t in zip(outputs, result):
                    self.unify(self.expression(output), t, output.span, f"the result of `{node.operator}`")
            case s.InRange(variable=variable, low=low, high=high):
                t = self.expression(variable)
                for bound in (low, high):
                    self.unify(self.expression(bound), t, bound.span, "the other parts of the range")
                self.require(t, "integer", node.span, "a range")
            case s.Variable() | s.Constant() | s.Binary() | s.Unary() | s.Conditional() | s.Cast() | s.Call():
                t = self.expression(node)
                resolved = resolve(t)
                if resolved is not BOOL:
                    if isinstance(resolved, Open) and resolved.family == "any":
                        self.unify(t, BOOL, node.span, "a condition")
                    else:
                        self.error(
                            TypeMismatchError,
                            "a condition in a body must be a comparison or a bool",
                            node.span,
                            "write an atom, a comparison such as `x > 1`, or `n := count(...)`",
                        )
            case _:
                self.error(TypeMismatchError, "this cannot stand in a body", node.span)

    def atom(self, node: s.Atom) -> None:
        if node.parameters or (node.relation in FOREIGN_PREDICATES and node.relation not in self.columns):
            if node.relation in AGGREGATES or node.relation in LATER_AGGREGATES:
                self.error(TypeMismatchError, f"the aggregate `{node.relation}` needs variables and a `:`", node.span)
            self.error(
                UnsupportedError,
                f"the foreign predicate `{node.relation}` is not supported yet",
                node.span,
                "write `x in a..b`" if node.relation == "range" else None,
            )
        self.arguments(node.relation, node.arguments, self.relation(node.relation, len(node.arguments), node.span))

    def arguments(self, relation: str, arguments: tuple[Any, ...], columns: list[Type]) -> None:
        for i, (argument, column) in enumerate(zip(arguments, columns)):
            if isinstance(argument, s.Wildcard):
                self.of[id(argument)] = column
                continue
            self.unify(self.expression(argument), column, argument.span, f"column {i + 1} of `{relation}`")

    def aggregate(self, node: s.Aggregate) -> list[Type]:
        if node.operator not in AGGREGATES:
            if node.operator in LATER_AGGREGATES:
                self.error(UnsupportedError, f"the aggregate `{node.operator}` is not supported yet", node.span)
            known = [*AGGREGATES, *LATER_AGGREGATES]
            hint = suggestion(node.operator, known, f"the aggregates are {', '.join(AGGREGATES)}")
            self.error(TypeMismatchError, f"unknown aggregate `{node.operator}`", node.span, hint)
        record = AGGREGATES[node.operator]
        if node.parameters:
            self.error(TypeMismatchError, f"`{node.operator}` has no parameter `{node.parameters[0]}`", node.span)
        # Bindings and bracket variables are local to the aggregate.
        outer = {n: self.scope.pop(n) for n in (*node.bindings, *node.arguments) if n in self.scope}
        local: dict[str, Type] = {name: Open() for name in (*node.bindings, *node.arguments)}
        for name, type_name in node.binding_types:
            local[name] = self.named_type(type_name, node.span)
        self.scope.update(local)
        if node.group_body is not None:
            self.formula(node.group_body)
            for name in node.group:
                self.scope.setdefault(name, Open())
        self.formula(node.body)
        for name in local:
            del self.scope[name]
        self.variables[id(node)] = local
        self.scope.update(outer)
        values = [local[name] for name in node.bindings]
        arguments = [local[name] for name in node.arguments]
        if record.takes is not None:
            if len(values) != len(record.takes):
                count = "one variable" if len(record.takes) == 1 else f"{len(record.takes)} variables"
                self.error(TypeMismatchError, f"`{node.operator}` folds {count}, {len(values)} are given", node.span)
            for value, family in zip(values, record.takes):
                self.require(value, family, node.span, f"`{node.operator}`")
        if record.returns == "arguments" and not arguments:
            self.error(
                TypeMismatchError,
                f"`{node.operator}` needs the variables it returns in brackets",
                node.span,
                f"write `{node.operator}[a](x: ...)`",
            )
        return record.result_types(arguments, values)

    # Expressions

    def tag(self, tag: Any) -> None:
        t = resolve(self.expression(tag))
        if isinstance(t, ValueType) and not (t.is_number or t is BOOL):
            self.error(TypeMismatchError, f"a tag must be a number, this is {t}", tag.span)

    def expression(self, node: Any) -> Type:
        t = self.of[id(node)] = self._expression(node)
        return t

    def _expression(self, node: Any) -> Type:
        match node:
            case s.Constant(kind=kind):
                t: Type = {
                    "bool": BOOL,
                    "char": TYPES["char"],
                    "symbol": TYPES["Symbol"],
                }.get(kind) or Open("number" if kind == "integer" else kind)
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
            case s.Atom(relation=name):
                self.error(TypeMismatchError, f"the atom `{name}(...)` stands where a value is expected", node.span)
            case s.Aggregate(operator=name):
                self.error(
                    TypeMismatchError,
                    f"the aggregate `{name}` stands where a value is expected",
                    node.span,
                    f"assign it in the body first: `n := {name}(...)`",
                )
        return self.error(TypeMismatchError, "a formula stands where a value is expected", node.span)

    def call(self, node: s.Call, name: str, arguments: tuple[Any, ...]) -> Type:
        if name not in FUNCTIONS:
            otherwise = "`derivable.datalog.function` makes a Python function known"
            hint = suggestion(name, FUNCTIONS, otherwise, "$")
            self.error(UnsupportedError, f"unknown function `${name}`", node.span, hint)
        record = FUNCTIONS[name]
        wanted = len(record.parameters)
        if len(arguments) != wanted:
            count = "one argument" if wanted == 1 else f"{wanted} arguments"
            self.error(TypeMismatchError, f"`${name}` takes {count}, {len(arguments)} are given", node.span)
        for argument, parameter in zip(arguments, record.parameters):
            t = self.expression(argument)
            if isinstance(parameter, ValueType):
                self.unify(t, parameter, argument.span, f"the parameter of `${name}`")
            else:
                self.require(t, parameter, argument.span, f"`${name}`")
        return record.result if isinstance(record.result, ValueType) else Open(record.result)

    def binary(self, node: s.Binary, operator: str, a: Any, b: Any) -> Type:
        left = self.expression(a)
        right = self.expression(b)
        if operator in ("&&", "||", "^"):
            self.unify(left, BOOL, a.span, f"`{operator}`")
            self.unify(right, BOOL, b.span, f"`{operator}`")
            return BOOL
        self.unify(right, left, b.span, f"the left side of `{operator}`")
        if operator in ("==", "!=", "<", "<=", ">", ">="):
            return BOOL
        self.require(left, "addable" if operator == "+" else "number", node.span, f"`{operator}`")
        return left

    # Unification

    def require(self, t: Type, family: str, span: Span, what: str) -> None:
        t = resolve(t)
        if isinstance(t, ValueType):
            if t.family not in _FAMILIES[family]:
                self.error(TypeMismatchError, f"type clash: {what} needs {_FAMILY_NAMES[family]}, this is {t}", span)
            return
        met = _meet(t.family, family)
        if met is None:
            self.error(
                TypeMismatchError,
                f"type clash: {what} needs {_FAMILY_NAMES[family]}, this is {_FAMILY_NAMES[t.family]}",
                span,
            )
        t.family = met

    def unify(self, found: Type, wanted: Type, span: Span, where: str) -> None:
        a, b = resolve(found), resolve(wanted)
        if a is b:
            return
        if isinstance(a, ValueType) and isinstance(b, ValueType):
            if a != b:
                self.clash(a, b, span, where)
            return
        if isinstance(a, Open) and isinstance(b, Open):
            met = _meet(a.family, b.family)
            if met is None:
                self.clash(a, b, span, where)
            b.family = met
            a.link = b
            return
        open_type, fixed = (a, b) if isinstance(a, Open) else (b, a)
        assert isinstance(open_type, Open)
        assert isinstance(fixed, ValueType)
        if fixed.family not in _FAMILIES[open_type.family]:
            self.clash(a, b, span, where)
        open_type.link = fixed

    def clash(self, a: Type, b: Type, span: Span, where: str) -> NoReturn:
        def shown(t: Type) -> str:
            return str(t) if isinstance(t, ValueType) else _FAMILY_NAMES[t.family]

        hint = None
        if isinstance(a, ValueType) and isinstance(b, ValueType) and a.is_number and b.is_number:
            hint = f"convert one side: `x as {b}`"
        self.error(TypeMismatchError, f"type clash: this is {shown(a)}, but {where} is {shown(b)}", span, hint)

    # Result

    def finish(self) -> Typed:
        def final(t: Type) -> ValueType:
            t = resolve(t)
            return t if isinstance(t, ValueType) else _DEFAULTS[t.family]

        for node, t in self.literals:
            fixed = final(t)
            low, high = fixed.limits
            if fixed.family == "float":
                high = float(np.finfo(fixed.dtype).max)
                low = -high
            if fixed.is_number and not low <= node.value <= high:
                self.error(TypeMismatchError, f"{node.value} does not fit {fixed}", node.span)
        for node in self.casts:
            source, target = final(self.of[id(node.operand)]), final(self.of[id(node)])
            if {source.family, target.family} == {"float", "char"}:
                self.error(
                    TypeMismatchError,
                    f"{source} cannot be cast to {target}",
                    node.span,
                    f"go through an integer: `{expression_text(node.operand)} as u32 as {target}`",
                )
        signatures = {}
        for name, columns in self.columns.items():
            signatures[name] = RelationSignature(
                name,
                tuple(final(c) for c in columns),
                self.names[name],
                name in self.declared,
                name in self.defined,
                self.declared.get(name) or self.first_use.get(name, s.NOWHERE),
            )
        return Typed(
            self.syntax,
            signatures,
            {name: (_valued(value, final(t)), final(t)) for name, (value, t) in self.constants.items()},
            {key: final(t) for key, t in self.of.items()},
            {key: {name: final(t) for name, t in scope.items()} for key, scope in self.variables.items()},
            self.types,
        )
