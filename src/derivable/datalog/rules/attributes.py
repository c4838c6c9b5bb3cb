"""What each attribute is: a record with the items it may stand on and the arguments that it takes.

Checking gives core attributes, whose arguments all have names. Desugaring reads `@hidden`, `@goal` and `@demand`, files
`@file`. Nobody reads `@scheduler`, `@storage`, `@no_temp_relation` and `@tagged`: they tell Scallop's engine how to
compute what is computed here in one way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from derivable.core.diagnostics import DerivableError, DomainError, Span, TypeMismatchError, UnsupportedError
from derivable.core.registry import Registry, suggestion
from derivable.datalog.syntax import nodes as s

_KINDS = {
    "text": "a text",
    "bool": "true or false",
    "integer": "an integer",
    "texts": "a text or a list of texts",
}


@dataclass(frozen=True)
class AttributeRecord:
    """One attribute.

    items     the items it may stand on: "type", "rel", "query"
    takes     argument -> "text", "bool", "integer" or "texts"; a value for the first of them may stand without a name
    required  how many of them must be there
    choices   argument -> the values that it may have
    refusal   why it is not supported
    """

    name: str
    items: tuple[str, ...] = ("type", "rel", "query")
    takes: Mapping[str, str] | None = None
    required: int = 0
    choices: Mapping[str, tuple[str, ...]] | None = None
    refusal: str | None = None


ATTRIBUTES: Registry[AttributeRecord] = Registry(
    "attribute",
    {
        record.name: record
        for record in [
            AttributeRecord(
                "file",
                ("type", "query"),
                {
                    "path": "text",
                    "header": "bool",
                    "deliminator": "text",
                    "has_probability": "bool",
                    "keys": "texts",
                    "fields": "texts",
                    "quotes": "bool",
                },
                1,
            ),
            AttributeRecord("demand", ("type", "rel"), {"pattern": "text"}, 1),
            AttributeRecord("hidden", ("type", "rel")),
            AttributeRecord("goal"),
            AttributeRecord(
                "scheduler",
                takes={"name": "text", "beam_size": "integer"},
                required=1,
                choices={"name": ("lfp", "dfs", "astar", "a-star", "beam")},
            ),
            AttributeRecord(
                "storage",
                takes={"name": "text"},
                required=1,
                choices={"name": ("sorted", "indexed_vec")},
            ),
            AttributeRecord("no_temp_relation"),
            AttributeRecord("tagged"),
            AttributeRecord("magic_set", refusal="it is internal to Scallop; write `@demand`"),
        ]
    },
)
# Other names of arguments.
_ALIASES = {"delimiter": "deliminator", "has_header": "header"}


def checked(syntax: s.Syntax, attribute: s.Attribute, item: str) -> s.Attribute:
    """The attribute with all its arguments named. `item` is "type", "rel" or "query".

    Raises UnsupportedError for an unknown attribute or an item on which it cannot stand, TypeMismatchError for
    arguments it does not take, DomainError for values it does not know.
    """

    def fail(kind: type[DerivableError], message: str, hint: str | None = None, span: Span | None = None) -> NoReturn:
        syntax.error(kind, message, span or attribute.span, hint)

    name = attribute.name
    if name not in ATTRIBUTES:
        listed = f"the attributes are {', '.join(f'`@{known}`' for known in ATTRIBUTES.names())}"
        fail(UnsupportedError, f"unknown attribute `@{name}`", suggestion(name, ATTRIBUTES, listed, "@"))
    record = ATTRIBUTES[name]
    if record.refusal is not None:
        fail(UnsupportedError, f"the attribute `@{name}` is not supported", record.refusal)
    if item not in record.items:
        fail(
            UnsupportedError,
            f"the attribute `@{name}` cannot stand on `{item}`",
            f"it stands on {' or '.join(f'`{p}`' for p in record.items)}",
        )
    takes = dict(record.takes or {})
    arguments: dict[str, Any] = {}
    for index, (written, value) in enumerate(attribute.arguments):
        if written is None and not takes:
            fail(TypeMismatchError, f"`@{name}` takes no arguments")
        if written is None and index:
            rest = [f"`{other}=...`" for other in list(takes)[1:]]
            hint = f"the others have names: {', '.join(rest)}" if rest else None
            fail(TypeMismatchError, f"`@{name}` takes one argument without a name", hint)
        argument = next(iter(takes)) if written is None else _ALIASES.get(written, written)
        if argument not in takes:
            known = f"its arguments are {', '.join(takes)}" if takes else "it takes no arguments"
            fail(TypeMismatchError, f"`@{name}` has no argument `{argument}`", suggestion(argument, takes, known))
        if argument in arguments:
            fail(TypeMismatchError, f"the argument `{argument}` of `@{name}` is given twice")
        if not _is_of(value, takes[argument]):
            fail(TypeMismatchError, f"the argument `{argument}` of `@{name}` must be {_KINDS[takes[argument]]}")
        choices = (record.choices or {}).get(argument)
        if choices is not None and value not in choices:
            listed = suggestion(value, choices, f"known are {', '.join(choices)}")
            fail(DomainError, f"`@{name}` does not know `{value}`", listed)
        arguments[argument] = value
    for argument in list(takes)[: record.required]:
        if argument not in arguments:
            fail(TypeMismatchError, f"`@{name}` needs the argument `{argument}`, {_KINDS[takes[argument]]}")
    return replace(attribute, arguments=tuple(arguments.items()))


def _is_of(value: Any, kind: str) -> bool:
    if kind == "texts":
        return isinstance(value, str) or (isinstance(value, tuple) and all(isinstance(v, str) for v in value))
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, {"text": str, "bool": bool}[kind])
