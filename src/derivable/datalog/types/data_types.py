"""Algebraic data types: their names, their constructors, terms and patterns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np

from derivable.core.diagnostics import BindingError, DomainError, Span, TypeMismatchError, UnsupportedError
from derivable.core.registry import suggestion
from derivable.datalog.scalars.arithmetic import value_of
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.parse import term_as_written
from derivable.datalog.types.conversion import core_expression
from derivable.datalog.types.declarations import Declarations
from derivable.datalog.types.unification import Type, final
from derivable.datalog.values.constructors import Constructor, check_term
from derivable.datalog.values.terms import Entity, subterms
from derivable.datalog.values.values import ValueType

# Of a deeper term an error says where it begins.
_SHALLOW = 30


def is_term(node: Any, constructors: Mapping[str, Constructor]) -> TypeGuard[s.Atom | s.New]:
    """Whether an expression is a constructor with fields, `Node(x, l)` or `new Node(x, l)`."""
    return isinstance(node, s.New) or (isinstance(node, s.Atom) and node.relation in constructors)


def ground(
    node: Any,
    t: ValueType,
    constructors: Mapping[str, Constructor],
    constants: Mapping[str, Any],
    computed: Callable[[Any], Any] = lambda node: None,
) -> Any:
    """The value of a literal, a named constant or a constructor of such; None for anything else.

    constants  name -> (value, type)
    computed   the value of another expression, or None
    """
    if isinstance(node, s.Constant):
        return float(node.value) if t.family == "float" else node.value
    if isinstance(node, s.Variable) and node.name in constants:
        return constants[node.name][0]
    if is_term(node, constructors):
        constructor = constructors[node.constructor if isinstance(node, s.New) else node.relation]
        fields = [ground(a, f, constructors, constants, computed) for a, f in zip(node.arguments, constructor.fields)]
        return None if any(field is None for field in fields) else Entity(constructor.name, *fields)
    return computed(node)


class DataTypes(Declarations, ABC):
    """What `type Tree = Leaf() | Node(i32, Tree)` declares, and the types of terms."""

    @abstractmethod
    def expression(self, node: Any) -> Type: ...

    def declare_data_types(self) -> None:
        """The names of the types and of their constructors; they may stand before their declaration."""
        self.variants: dict[str, tuple[s.Variant, ValueType]] = {}
        self.constructors: dict[str, Constructor] = {}
        for item in self.syntax.items:
            if not isinstance(item, s.DataType):
                continue
            self.new_name(item.name, item.span)
            t = self.types[item.name] = ValueType(item.name, "entity", 64, np.dtype("O"))
            for variant in item.variants:
                if variant.name in self.variants:
                    other, other_type = self.variants[variant.name]
                    self.error(
                        BindingError,
                        f"the constructor `{variant.name}` is declared twice",
                        variant.span,
                        f"the first is one of `{other_type}`, on {other.span.location}",
                    )
                self.variants[variant.name] = variant, t

    def declare_constructors(self) -> None:
        """The fields of the constructors, when all types have names."""
        for name, (variant, t) in self.variants.items():
            fields = tuple(self.named_type(column.type_name, column.span) for column in variant.columns)
            for column in variant.columns:
                if column.adornment is not None:
                    self.mismatch(f"a field is not `{column.adornment}`", column.span)
            self.constructors[name] = Constructor(name, t, fields, variant.span)
        for item in self.syntax.items:
            if isinstance(item, s.DataType):
                self.check_finite(item)

    def check_finite(self, item: s.DataType) -> None:
        """Whether the type has a term at all: some variant must do without itself."""
        empty = {t.name for _, t in self.variants.values()}
        for _ in range(len(empty)):
            empty -= {c.type.name for c in self.constructors.values() if not any(f.name in empty for f in c.fields)}
        if item.name in empty:
            self.mismatch(
                f"the type `{item.name}` has no finite term: every variant needs a term of a type that has none",
                item.span,
                f"add a variant that ends the recursion, such as `End{item.name}()`",
            )

    def declare_terms(self) -> None:
        """The constants that are terms."""
        for item in self.syntax.items:
            if isinstance(item, s.ConstantItem) and not isinstance(item.value, s.Constant):
                self.scope = {}
                t = self.expression(item.value)
                self.unify(t, self.constants[item.name][1], item.value.span, f"the constant `{item.name}`")
                if item.type_name is not None:
                    wanted = self.named_type(item.type_name, item.span)
                    self.unify(t, wanted, item.value.span, f"the declared type of `{item.name}`")
                if self.scope:
                    name = next(iter(self.scope))
                    hint = suggestion(name, self.constants, "a constant is made of literals and other constants")
                    self.error(
                        BindingError, f"`{name}` in the constant `{item.name}` is unknown", item.value.span, hint
                    )

    def constructor(self, name: str, span: Span) -> Constructor:
        if name in self.constructors:
            return self.constructors[name]
        if name in self.constants:
            self.mismatch(f"`{name}` is a constant, not a constructor", span, f"write `{name}` alone")
        if name in self.types:
            of_type = [c.name for c in self.constructors.values() if c.type.name == name]
            hint = f"its constructors are {', '.join(of_type)}" if of_type else "it has no constructors"
            self.mismatch(f"`{name}` is a type, not a constructor", span, hint)
        hint = suggestion(name, self.constructors, f"declare it: `type T = {name}(...) | ...`")
        return self.error(BindingError, f"unknown constructor `{name}`", span, hint)

    def term(self, node: s.Atom | s.New) -> ValueType:
        """The type of a term or pattern, whose fields are typed."""
        constructor = self.constructor(node.constructor if isinstance(node, s.New) else node.relation, node.span)
        name, wanted = constructor.name, len(constructor.fields)
        if len(node.arguments) != wanted:
            count = "no fields" if not wanted else "one field" if wanted == 1 else f"{wanted} fields"
            passed = "one is given" if len(node.arguments) == 1 else f"{len(node.arguments)} are given"
            self.mismatch(f"`{name}` has {count}, {passed}", node.span, f"it is `{constructor}`")
        for i, (argument, t) in enumerate(zip(node.arguments, constructor.fields)):
            self.unify(self.expression(argument), t, argument.span, f"field {i + 1} of `{name}`")
        return constructor.type

    def constant_term(self, term: Entity, span: Span) -> ValueType:
        """The type of a term that is written in the program."""
        try:
            for part in subterms([term]):
                check_term(part, self.constructors)
        except TypeMismatchError as error:
            if term.height < _SHALLOW:
                # That raises an error with the span inside the term.
                self.term(term_as_written(self.syntax.text, span))
            self.mismatch(error.message, span, error.hint)
        return self.constructors[term.functor].type

    def case(self, node: s.Case) -> None:
        t = self.of[id(node.pattern)] = self.term(node.pattern)
        self.unify(self.expression(node.subject), t, node.subject.span, f"the pattern `{node.pattern.relation}(...)`")

    def constant_terms(self) -> dict[str, tuple[Any, ValueType]]:
        """All constants with their values: terms of other constants are built when these are."""
        constants = {
            name: (float(value) if final(t).family == "float" else value, final(t))
            for name, (value, t) in self.constants.items()
            if not isinstance(value, s.Node)
        }

        def computed(node: Any) -> Any:
            expression = core_expression(node, self.of, constants)
            value = None if expression is None else value_of(expression)
            if expression is not None and value is None:
                self.error(DomainError, "this has no value", node.span, "it divides by zero, or a cast fails")
            return value

        waiting = {name: value for name, (value, _) in self.constants.items() if isinstance(value, s.Node)}
        while waiting:
            before = len(waiting)
            for name, node in list(waiting.items()):
                t = final(self.constants[name][1])
                value = ground(node, t, self.constructors, constants, computed)
                if value is not None:
                    constants[name] = value, t
                    del waiting[name]
            if len(waiting) == before:
                name, node = next(iter(waiting.items()))
                self.error(
                    UnsupportedError,
                    f"the constant `{name}` must be made of literals and other constants",
                    node.span,
                    "a constant cannot be made of itself",
                )
        return {name: constants[name] for name in self.constants}
