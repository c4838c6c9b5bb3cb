"""Attributes of items that Python processes: what a processor is called with, and what becomes of the item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from derivable.compat.scallopy.foreign import ForeignAttributeProcessor, ForeignFunction, ForeignPredicate
from derivable.compat.scallopy.syntax import item_node
from derivable.core.diagnostics import DerivableError, DomainError
from derivable.core.roots import Roots
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.imports import with_imports
from derivable.datalog.syntax.parse import parse
from derivable.datalog.syntax.text import syntax_text

if TYPE_CHECKING:
    from derivable.compat.scallopy.context import ScallopContext


class AttributeAction:
    """What becomes of an item, as a processor says it."""


class NoAction(AttributeAction):
    """The item stays as it is."""


class RemoveItemAction(AttributeAction):
    """The item is left out of the program."""


class ErrorAction(AttributeAction):
    """The program is refused, with a message."""

    def __init__(self, msg: str):
        self.msg = msg


class MultipleActions(AttributeAction):
    """Several actions, one after the other."""

    def __init__(self, actions: Sequence[AttributeAction]):
        self.actions = list(actions)


class RegisterForeignFunctionAction(AttributeAction):
    """A function is registered."""

    def __init__(self, ff: ForeignFunction):
        self.foreign_function = ff


class RegisterForeignPredicateAction(AttributeAction):
    """A predicate is registered."""

    def __init__(self, fp: ForeignPredicate):
        self.foreign_predicate = fp


def expanded(text: str, processors: Mapping[str, ForeignAttributeProcessor], context: ScallopContext) -> str:
    """The text of a program, with the files that it imports, after the processors of its attributes, which register
    functions and predicates; the same text where it has none of them.

    Raises DomainError where a processor fails, with what it says.
    """
    syntax = with_imports(parse(text), None, Roots())
    kept: list[s.Item] = []
    is_changed = False
    for items in _statements(syntax.items):
        attributes = getattr(items[0], "attributes", ())
        own = [one for one in attributes if one.name in processors]
        if not own:
            kept += items
            continue
        is_changed = True
        rest = tuple(one for one in attributes if one.name not in processors)
        bare = [replace(item, attributes=rest) for item in items if isinstance(item, s.Attributed)]
        stays = True
        for attribute in own:
            stays &= _apply(processors[attribute.name], attribute, bare, attributes, context)
        if stays:
            kept += bare
    return syntax_text(s.Syntax(tuple(kept))) if is_changed else text


def _statements(items: Sequence[s.Item]) -> list[list[s.Item]]:
    """The items of each statement: `type a(i32), b(i32)` is several."""
    found: list[list[s.Item]] = []
    for item in items:
        if isinstance(item, s.RelationType) and item.attributes and found:
            last = found[-1][-1]
            if isinstance(last, s.RelationType) and last.attributes and last.attributes[0] is item.attributes[0]:
                found[-1].append(item)
                continue
        found.append([item])
    return found


def _apply(
    processor: ForeignAttributeProcessor,
    attribute: s.Attribute,
    items: Sequence[s.Item],
    attributes: Sequence[s.Attribute],
    context: ScallopContext,
) -> bool:
    """Call a processor. Returns whether the items stay."""
    arguments = [_value(value) for name, value in attribute.arguments if name is None]
    keywords = {name: _value(value) for name, value in attribute.arguments if name is not None}
    try:
        found = processor(item_node(items, attributes), *arguments, **keywords)
    except DerivableError:
        raise
    except Exception as error:
        raise DomainError(f"the attribute @{processor.name} failed: {type(error).__name__}: {error}") from error
    return _act(processor, found, context)


def _act(processor: ForeignAttributeProcessor, found: Any, context: ScallopContext) -> bool:
    """Do what a processor returns. Returns whether the items stay."""
    match found:
        case None | NoAction():
            return True
        case list() | tuple():
            return False not in [_act(processor, one, context) for one in found]
        case MultipleActions():
            return False not in [_act(processor, one, context) for one in found.actions]
        case ForeignFunction():
            context.register_foreign_function(found)
        case ForeignPredicate():
            context.register_foreign_predicate(found)
        case RegisterForeignFunctionAction():
            context.register_foreign_function(found.foreign_function)
            return True
        case RegisterForeignPredicateAction():
            context.register_foreign_predicate(found.foreign_predicate)
            return True
        case ErrorAction():
            raise DomainError(f"the attribute @{processor.name} failed: {found.msg}")
        case AttributeAction():
            return False
        case _:
            raise DomainError(
                f"the attribute @{processor.name} gives {found!r}",
                hint="None, a foreign function or predicate, RemoveItemAction(), or a list of such",
            )
    return False


def _value(given: Any) -> Any:
    if not isinstance(given, tuple):
        return given
    return (tuple if isinstance(given, s.Group) else list)(map(_value, given))
