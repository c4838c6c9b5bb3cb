"""Attributes of items that Python processes: what such a function sees of an item, and what becomes of the item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from derivable.compat.scallopy.foreign import ForeignAttributeProcessor, ForeignFunction, ForeignPredicate
from derivable.core.diagnostics import DerivableError, DomainError
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.parse import parse
from derivable.datalog.syntax.text import syntax_text

if TYPE_CHECKING:
    from derivable.compat.scallopy.context import ScallopContext


class Action:
    """What becomes of an item, as a processor says it."""


class RemoveItem(Action):
    """The item is left out of the program."""


class Name(str):
    """A name in an item, which `name` is too."""

    @property
    def name(self) -> str:
        """The name as a text."""
        return str(self)


class Type:
    """The type of a column: `to_string()`, and `is_string()`, `is_i32()`, ... for each type."""

    def __init__(self, name: str):
        self.name = name

    def to_string(self) -> str:
        """The type as the language writes it."""
        return self.name

    __str__ = to_string

    def __getattr__(self, name: str) -> Any:
        if name.startswith("is_"):
            return lambda: name[3:].lower() == self.name.lower()
        raise AttributeError(name)


class Argument:
    """A column of a relation, or an argument of a function: its name, its type, and whether it is bound."""

    def __init__(self, column: s.Column):
        self.name = None if column.name is None else Name(column.name)
        self.ty, self.adornment = Type(column.type_name), column.adornment

    def is_bound(self) -> bool:
        """Whether it is marked as bound."""
        return self.adornment == "bound"

    def is_free(self) -> bool:
        """Whether it is not marked as bound."""
        return not self.is_bound()


class Declaration:
    """The declaration of a relation, or of a function."""

    def __init__(self, item: s.RelationType | s.FunctionType):
        self.name = Name(item.name)
        columns = item.columns if isinstance(item, s.RelationType) else item.parameters
        self.args = self.arg_bindings = [Argument(column) for column in columns]
        self.arg_types = [argument.ty for argument in self.args]
        self.result = item.result if isinstance(item, s.FunctionType) else None
        self.ret_ty = None if self.result is None else Type(self.result)


class Item:
    """An item as a processor sees it."""

    def __init__(self, item: s.Item):
        self.item = item
        self.name = Name(item.name) if isinstance(item, (s.RelationType, s.FunctionType)) else None

    def is_relation_decl(self) -> bool:
        """Whether it declares a relation."""
        return isinstance(self.item, s.RelationType)

    def is_function_decl(self) -> bool:
        """Whether it declares a function."""
        return isinstance(self.item, s.FunctionType)

    def is_rule(self) -> bool:
        """Whether it is a rule."""
        return isinstance(self.item, (s.Rule, s.ReduceRule))

    def is_query(self) -> bool:
        """Whether it is a query."""
        return isinstance(self.item, s.Query)

    def relation_decls(self) -> list[Declaration]:
        """The relations that it declares: one, as each declaration is an item."""
        return [Declaration(self.item)] if isinstance(self.item, s.RelationType) else []

    def relation_decl(self, place: int = 0) -> Declaration:
        """The relation that it declares."""
        if not isinstance(self.item, s.RelationType):
            raise DomainError("the item declares no relation")
        return self.relation_decls()[place]

    def function_decl(self) -> Declaration:
        """The function that it declares."""
        if not isinstance(self.item, s.FunctionType):
            raise DomainError("the item declares no function")
        return Declaration(self.item)

    def __str__(self) -> str:
        return syntax_text(s.Syntax((self.item,))).strip()


def expanded(text: str, processors: Mapping[str, ForeignAttributeProcessor], context: ScallopContext) -> str:
    """The text of a program after the processors of its attributes, which register functions and predicates.

    Raises DomainError where a processor fails, with what it says.
    """
    syntax = parse(text)
    kept: list[s.Item] = []
    for item in syntax.items:
        attributes = item.attributes if isinstance(item, s.Attributed) else ()
        own = [one for one in attributes if one.name in processors]
        if not own:
            kept.append(item)
            continue
        assert isinstance(item, s.Attributed)
        rest = tuple(one for one in attributes if one.name not in processors)
        item = replace(item, attributes=rest)
        is_kept = True
        for attribute in own:
            is_kept &= _apply(processors[attribute.name], attribute, item, context)
        if is_kept:
            kept.append(item)
    if kept == list(syntax.items):
        return text
    return syntax_text(s.Syntax(tuple(kept)))


def _apply(processor: ForeignAttributeProcessor, attribute: s.Attribute, item: s.Item, context: ScallopContext) -> bool:
    """Call a processor. Returns whether the item stays."""
    arguments = [_value(value) for name, value in attribute.arguments if name is None]
    keywords = {name: _value(value) for name, value in attribute.arguments if name is not None}
    try:
        found = processor(Item(item), *arguments, **keywords)
    except DerivableError:
        raise
    except Exception as error:
        raise DomainError(f"the attribute @{processor.name} failed: {type(error).__name__}: {error}") from error
    is_kept = True
    for action in found if isinstance(found, (list, tuple)) else [found]:
        if isinstance(action, ForeignFunction):
            context.register_foreign_function(action)
        elif isinstance(action, ForeignPredicate):
            context.register_foreign_predicate(action)
        elif action is not None and not isinstance(action, Action):
            raise DomainError(
                f"the attribute @{processor.name} gives {action!r}",
                hint="None, a foreign function or predicate, RemoveItem(), or a list of such",
            )
        is_kept &= action is None
    return is_kept


def _value(given: Any) -> Any:
    return list(map(_value, given)) if isinstance(given, tuple) else given
