"""Types of Soufflé's programs, and the types of what stands in one clause.

A type is one of four primitive ones, a record or a sum of branches; subtypes and unions are those that they are made
of, which is all that a value depends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from derivable.core.diagnostics import BindingError, DerivableError, TypeMismatchError
from derivable.core.registry import suggestion
from derivable.datalog.scalars.nodes import children
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.components import PRIMITIVES
from derivable.datalog.souffle.lexer import SourceText

NUMERIC = ("number", "unsigned", "float")
# The types of numbers for the bits of a word.
WORDS = {
    32: {"number": "i32", "unsigned": "u32", "float": "f32", "symbol": "String"},
    64: {"number": "i64", "unsigned": "u64", "float": "f64", "symbol": "String"},
}
# The names of types in FlowLog.
ALIASES = {
    **{f"int{bits}": "number" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": "unsigned" for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("float32", "float64"), "float"),
    "string": "symbol",
}
_COMPARED = ("=", "!=", "<", "<=", ">", ">=")
# The types of parameters and results of functors that have the same ones for all types.
_RESULTS = {
    "cat": "symbol",
    "strlen": "number",
    "substr": "symbol",
    "to_number": "number",
    "to_unsigned": "unsigned",
    "to_float": "float",
    "to_string": "symbol",
    "ord": "number",
}
_PARAMETERS = {"cat": ("symbol",) * 99, "strlen": ("symbol",), "substr": ("symbol", "number", "number")}


@dataclass(frozen=True)
class Constructor:
    """What makes a value of a record or of a branch: its name in the translation, and the types of its fields."""

    name: str
    branch: str
    fields: tuple[str, ...]


class Types:
    """The types and relations that a flat program declares.

    base           name of a type -> the primitive type, record or sum that its values are of
    records        name of a record -> its constructor
    nils           name of a record -> the constructor of its `nil`
    sums           name of a sum -> branch -> constructor
    """

    def __init__(self, items: Iterable[n.Node], file: SourceText):
        self.file = file
        self.base: dict[str, str] = {name: name for name in PRIMITIVES} | ALIASES
        self.records: dict[str, Constructor] = {}
        self.nils: dict[str, str] = {}
        self.sums: dict[str, dict[str, Constructor]] = {}
        self.declared: dict[str, n.Node] = {}
        self.relations: dict[str, n.Relation] = {}
        self.functors: dict[str, n.FunctorType] = {}
        for item in items:
            match item:
                case n.SubType() | n.RecordType() | n.SumType():
                    if item.name in self.declared or item.name in PRIMITIVES:
                        raise self.error(BindingError, f"the type `{item.name}` is declared twice", item.span)
                    self.declared[item.name] = item
                case n.Relation():
                    if item.name in self.relations:
                        where = self.relations[item.name].span.location
                        hint = f"the first declaration is on {where}"
                        raise self.error(BindingError, f"`{item.name}` is declared twice", item.span, hint)
                    self.relations[item.name] = item
                case n.FunctorType():
                    self.functors[item.name] = item
        for name, item in self.declared.items():
            self.base[name] = self._base(name, item, ())
        taken: set[str] = set()
        for name, item in self.declared.items():
            if isinstance(item, n.RecordType):
                self.records[name] = Constructor(_free(name, taken), "", self.fields(item.fields))
                self.nils[name] = _free(f"{name}_nil", taken)
            elif isinstance(item, n.SumType):
                branches_of = self.sums[name] = {}
                for branch in item.variants:
                    if branch.name in branches_of:
                        raise self.error(BindingError, f"the branch `{branch.name}` is declared twice", branch.span)
                    branches_of[branch.name] = Constructor(
                        _free(branch.name, taken), branch.name, self.fields(branch.fields)
                    )

    def error(self, kind: type[DerivableError], message: str, span: n.Span, hint: str | None = None) -> DerivableError:
        return kind(message, hint=hint, source=self.file.source, text=self.file.text, span=span)

    def _base(self, name: str, item: n.Node, below: tuple[str, ...]) -> str:
        if isinstance(item, (n.RecordType, n.SumType)):
            return name
        assert isinstance(item, n.SubType)
        if name in below:
            raise self.error(BindingError, f"the type `{name}` is made of itself", item.span)
        bases = {
            base: self.base[base]
            if base in self.base and base not in self.declared
            else self._base(base, self.of_name(base, item.span), (*below, name))
            for base in item.bases
        }
        if len(set(bases.values())) > 1:
            shown = " and ".join(f"`{base}` is {one}" for base, one in bases.items())
            raise self.error(TypeMismatchError, f"`{name}` is a union of different things: {shown}", item.span)
        return next(iter(bases.values()))

    def of_name(self, name: str, span: n.Span) -> n.Node:
        if name in self.declared:
            return self.declared[name]
        known = [*PRIMITIVES, *self.declared]
        hint = suggestion(name, known, f"declare it: `.type {name} <: symbol`")
        raise self.error(BindingError, f"unknown type `{name}`", span, hint)

    def resolved(self, name: str, span: n.Span) -> str:
        """The primitive type, record or sum of a name."""
        if name not in self.base:
            self.of_name(name, span)
        return self.base[name]

    def fields(self, attributes: tuple[n.Attribute, ...]) -> tuple[str, ...]:
        return tuple(self.resolved(a.type_name, a.span) for a in attributes)

    def columns(self, relation: str, span: n.Span) -> tuple[str, ...]:
        """The types of a relation's columns. Raises BindingError for one that is not declared."""
        if relation not in self.relations:
            hint = suggestion(relation, self.relations, f"declare it: `.decl {relation}(x:number)`")
            raise self.error(BindingError, f"the relation `{relation}` is not declared", span, hint)
        return self.fields(self.relations[relation].attributes)

    def branch(self, node: n.Branch, wanted: str | None) -> tuple[str, Constructor]:
        """(sum, constructor) of a branch, of the wanted type if that is known."""
        name = node.name.rpartition(".")[2]
        if wanted in self.sums and name in self.sums[wanted]:
            return wanted, self.sums[wanted][name]
        branches_of = [(one, branches[name]) for one, branches in self.sums.items() if name in branches]
        if len(branches_of) == 1 and (wanted is None or wanted not in self.sums):
            return branches_of[0]
        if not branches_of:
            known = [branch for branches in self.sums.values() for branch in branches]
            hint = suggestion(name, known, f"declare it: `.type T = {name} {{x: number}} | ...`")
            raise self.error(BindingError, f"unknown branch `${name}`", node.span, hint)
        if wanted in self.sums:
            hint = f"the branches of `{wanted}` are {', '.join(self.sums[wanted])}"
            raise self.error(TypeMismatchError, f"`{wanted}` has no branch `${name}`", node.span, hint)
        hint = f"say which one: `as(${name}(...), {branches_of[0][0]})`"
        shown = " and ".join(one for one, _ in branches_of)
        raise self.error(TypeMismatchError, f"`${name}` is a branch of {shown}", node.span, hint)


def _free(name: str, taken: set[str]) -> str:
    """A name for a constructor that no other one has."""
    title = stem = name.replace(".", "_").replace("?", "_")
    number = 2
    while title in taken:
        title, number = f"{stem}_{number}", number + 1
    taken.add(title)
    return title


class ClauseTypes:
    """The types of variables and arguments of one clause, inferred from the columns in which they stand.

    known  the types of variables from around
    """

    def __init__(self, types: Types, formulas: Iterable[n.Node], known: Mapping[str, str] | None = None):
        self.types = types
        self.variables = dict(known or {})
        formulas = list(formulas)
        while True:
            before = len(self.variables)
            for formula in formulas:
                self.formula(formula)
            if len(self.variables) == before:
                break

    def formula(self, node: n.Node) -> None:
        match node:
            case n.Atom(name=name, arguments=arguments):
                columns = self.types.columns(name, node.span)
                if len(columns) != len(arguments):
                    count = f"{len(columns)} column{'s' if len(columns) != 1 else ''}"
                    message = f"`{name}` has {count}, but is used with {len(arguments)} here"
                    hint = f"it is declared on {self.types.relations[name].span.location}"
                    raise self.types.error(TypeMismatchError, message, node.span, hint)
                for argument, t in zip(arguments, columns):
                    self.argument(argument, t)
            case n.Constraint(operator=operator, left=left, right=right):
                wanted = None if operator in _COMPARED else "symbol"
                type_name = self.argument(left, wanted)
                type_name = self.argument(right, type_name or wanted)
                if wanted is None and type_name is not None:
                    self.argument(left, type_name)
            case _:
                for child in children(node):
                    self.formula(child)

    def argument(self, node: n.Argument, wanted: str | None = None) -> str | None:
        """The type of an argument, None if it is not known (yet); variables in it take the types that are wanted."""
        match node:
            case n.Variable(name=name):
                if wanted is not None:
                    self.variables.setdefault(name, wanted)
                return self.variables.get(name)
            case n.Literal(kind=kind):
                fixed = {"symbol": "symbol", "unsigned": "unsigned", "float": "float"}
                return fixed.get(kind, wanted if wanted in NUMERIC else None)
            case n.Record(arguments=arguments):
                fields = self.types.records[wanted].fields if wanted in self.types.records else ()
                for i, argument in enumerate(arguments):
                    self.argument(argument, fields[i] if i < len(fields) else None)
                return wanted if wanted in self.types.records else None
            case n.Branch(arguments=arguments):
                if wanted is None and sum(node.name.rpartition(".")[2] in b for b in self.types.sums.values()) > 1:
                    return None
                branch_type, constructor = self.types.branch(node, wanted)
                for argument, t in zip(arguments, constructor.fields):
                    self.argument(argument, t)
                return branch_type
            case n.As(operand=operand, type_name=name):
                t = self.types.resolved(name, node.span)
                self.argument(operand, t if isinstance(operand, n.TERMS) else None)
                return t
            case n.UserFunctor(name=name, arguments=arguments):
                declared = self.types.functors.get(name)
                if declared is None:
                    hint = suggestion(name, self.types.functors, f"declare it: `.functor {name}(x:number):number`")
                    raise self.types.error(BindingError, f"the functor `@{name}` is not declared", node.span, hint)
                for argument, parameter in zip(arguments, declared.parameters):
                    self.argument(argument, self.types.resolved(parameter, declared.span))
                return self.types.resolved(declared.result, declared.span)
            case n.Aggregate(operator=operator, target=target, body=body):
                type_name = None if operator == "count" else self.argument(target, wanted)  # type: ignore[arg-type]
                self.formula(body)
                if operator == "mean":
                    return "float"
                if operator == "count":
                    return wanted if wanted in NUMERIC else "number"
                return self.argument(target, type_name or wanted)  # type: ignore[arg-type]
            case n.Functor(name=name, arguments=arguments):
                if name in _RESULTS:
                    parameters = _PARAMETERS.get(name, ())
                    for i, argument in enumerate(arguments):
                        self.argument(argument, parameters[i] if i < len(parameters) else None)
                    if name == "strlen" or name == "ord":
                        return wanted if wanted in NUMERIC else "number"
                    return _RESULTS[name]
                common, untyped = wanted, []
                for argument in arguments:
                    t = self.argument(argument, common)
                    if t is None and common is None:
                        untyped.append(argument)
                    common = t or common
                # Only these: if all were looked at twice at each level, long sums would take forever.
                for argument in untyped if common is not None else ():
                    self.argument(argument, common)
                return common
        return wanted
