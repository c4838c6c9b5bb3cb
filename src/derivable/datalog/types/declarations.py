"""What a program declares: names of types, relations with their columns, constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from derivable.core.diagnostics import BindingError, Errors, Span
from derivable.core.registry import suggestion
from derivable.datalog.foreign.signature import Signature
from derivable.datalog.syntax import nodes as s
from derivable.datalog.types.mixed import Mixed
from derivable.datalog.types.unification import Open, Type
from derivable.datalog.values.values import ENTITY, TYPE_ALIASES, TYPES, USIZE, ValueType

_INTEGERS = "; other integers are i8 to i128, u8 to u128, isize and usize"
# What other languages call types: the name here, and what else there is.
_OTHER_NAMES = {
    **dict.fromkeys(("int", "integer", "number"), ("i32", _INTEGERS)),
    **dict.fromkeys(("long", "int64", "bigint"), ("i64", _INTEGERS)),
    **dict.fromkeys(("uint", "unsigned", "nat"), ("usize", _INTEGERS)),
    "int32": ("i32", _INTEGERS),
    "short": ("i16", _INTEGERS),
    "byte": ("u8", _INTEGERS),
    **dict.fromkeys(("float", "float32"), ("f32", "; f64 has double precision")),
    **dict.fromkeys(("double", "real", "float64"), ("f64", "")),
    **dict.fromkeys(("string", "str", "text", "varchar"), ("String", "")),
    "boolean": ("bool", ""),
    "symbol": ("Symbol", ""),
    "character": ("char", ""),
    **dict.fromkeys(("date", "time", "timestamp"), ("DateTime", "")),
}


def _defined(syntax: s.Syntax) -> set[str]:
    """The relations that a program declares, or gives facts or rules for."""
    names: set[str] = set()
    for item in syntax.items:
        match item:
            case s.RelationType(name=name) | s.FactSet(relation=name) | s.ReduceRule(relation=name):
                names.add(name)
            case s.Rule(heads=heads):
                names.update(head.relation for head in heads)
    return names


class Declarations(Mixed):
    """The names of one program and what is known of them so far."""

    def __init__(self, syntax: s.Syntax, hints: Mapping[str, tuple[str, ...]]):
        super().__init__(syntax)
        self.hints = hints
        self.types: dict[str, ValueType] = {**TYPES, ENTITY.name: ENTITY}
        self.named: dict[str, Span] = {}
        self.columns: dict[str, list[Type]] = {}
        self.names: dict[str, tuple[str | None, ...]] = {}
        self.first_use: dict[str, Span] = {}
        self.declared: dict[str, Span] = {}
        self.lattices: dict[str, str] = {}
        self.defined: set[str] = set()
        # Relations with a set of no facts, `rel s = {}`.
        self.emptied: set[str] = set()
        self.constants: dict[str, tuple[Any, Type]] = {}
        self.of: dict[int, Type] = {}
        self.scope: dict[str, Type] = {}
        self.variables: dict[int, dict[str, Type]] = {}
        self.literals: list[tuple[s.Constant, Type]] = []
        self.tables: list[tuple[s.FactTable, list[Type]]] = []
        self.tags: list[tuple[Any, Type]] = []
        # The nodes of tags, by identity, whose values are made real numbers.
        self.real: set[int] = set()
        self.errors = Errors()
        self.casts: list[s.Cast] = []
        self.functions: dict[str, Signature] = {}
        # Types may be used before their declarations.
        self.later: dict[str, s.AliasType | s.EnumType | None] = {
            item.name: item for item in syntax.items if isinstance(item, (s.AliasType, s.EnumType))
        }
        # Relations that the program defines hide foreign predicates of their names.
        self.defined_names = _defined(syntax)

    def new_name(self, name: str, span: Span) -> None:
        if name in self.named or name in TYPES or name == ENTITY.name:
            hint = f"the first declaration is on {self.named[name].location}" if name in self.named else None
            self.error(
                BindingError, f"`{name}` is declared twice" if hint else f"`{name}` is a built-in type", span, hint
            )
        self.named[name] = span

    def named_type(self, name: str, span: Span) -> ValueType:
        name = TYPE_ALIASES.get(name, name)
        if name in self.types:
            return self.types[name]
        if name in self.later:
            # None while it is looked up.
            later, self.later[name] = self.later[name], None
            if later is None:
                self.mismatch(f"the type `{name}` is declared by itself", span)
            self.types[name] = USIZE if isinstance(later, s.EnumType) else self.named_type(later.type_name, later.span)
            return self.types[name]
        hint = suggestion(name, self.types, "declare it with `type`")
        if name.lower() in _OTHER_NAMES:
            known, others = _OTHER_NAMES[name.lower()]
            hint = f"write `{known}`{others}"
        return self.mismatch(f"unknown type `{name}`", self.at_end(span, name), hint)

    def at_end(self, span: Span, name: str) -> Span:
        """The span of a name that a text ends with."""
        text = span.origin.text if span.origin else self.syntax.text
        line = text.split("\n")[span.line - 1]
        end = span.column - 1 + span.length
        return replace(span, column=end - len(name) + 1, length=len(name)) if line[:end].endswith(name) else span

    def relation(self, name: str, arity: int, span: Span) -> list[Type]:
        """The column types of a relation used with `arity` columns at `span`."""
        if name not in self.columns:
            self.columns[name] = [Open() for _ in range(arity)]
            self.names[name] = (None,) * arity
            self.first_use[name] = span
        columns = self.columns[name]
        if len(columns) != arity:
            first = self.declared.get(name) or self.first_use[name]
            verb = "declared" if name in self.declared else "first used"
            self.mismatch(
                f"`{name}` has {len(columns)} column{'s' if len(columns) != 1 else ''}, but is used with {arity} here",
                span,
                f"it is {verb} on {first.location}",
            )
        return columns
