"""Which runs of facts are rows of their relations as they are; others are written out as facts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.lexer import SourceText, tokens_of
from derivable.datalog.souffle.parse import parse
from derivable.datalog.souffle.types import WORDS, Types
from derivable.datalog.values.values import TYPES


def with_facts(items: Iterable[n.Node], types: Types, bits: int) -> list[n.Node]:
    """The items, in which only such facts are runs as are rows of their relation as they are."""
    fitting: list[n.Node] = []
    for item in items:
        if isinstance(item, n.Clause) and item.more is not None and not _are_rows(item, types, bits):
            fitting += spelled_out(item, types.file)
        else:
            fitting.append(item)
    return fitting


def spelled_out(item: n.Clause, file: SourceText) -> list[n.Clause]:
    """All facts of a run, each a clause with its position in the text."""
    run, name = item.more, item.heads[0].name
    facts = [replace(item, more=None)]
    origin = item.span.origin
    file = file if origin is None else SourceText(origin.text, origin.source, is_included=True)
    for clause in parse(tokens_of(file, run.start, run.end), file):
        assert isinstance(clause, n.Clause)
        facts.append(replace(clause, heads=(replace(clause.heads[0], name=name),)))
    return facts


def _are_rows(item: n.Clause, types: Types, bits: int) -> bool:
    relation = types.relations.get(item.heads[0].name)
    if relation is None or "inline" in relation.qualifiers:
        return False
    declared = types.fields(relation.attributes)
    return len(declared) == len(item.more.kinds) and all(
        _fits(kind, column, t, bits) for kind, column, t in zip(item.more.kinds, item.more.columns, declared)
    )


def _fits(kind: str, column: tuple, declared: str, bits: int) -> bool:
    if kind == "text" or declared not in ("number", "unsigned"):
        return kind == "text" and declared == "symbol"
    low, high = TYPES[WORDS[bits][declared]].limits
    return low <= min(column, default=0) and max(column, default=0) <= high
