"""The printer of RAM."""

from __future__ import annotations

from collections.abc import Container, Sequence

from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.text import (
    coin_text,
    expr_text,
    facts_text,
    generator_text,
    relation_text,
    rule_text,
    terms_text,
)


def query_lines(query: m.Project, indent: int) -> list[str]:
    """One operator a line, sources indented below it."""
    nodes, depth = query.operators, indent + len(query.operators)
    lines = [f"{'  ' * indent}project [{terms_text(query.terms)}]"]
    titles = [f"{'  ' * (depth - index)}{title}" for index, title in enumerate(_titles(nodes))]
    # What operators read beside their sources stands below these.
    beside = [
        f"{'  ' * (depth - index + 1)}{_scan_text(scan)}"
        for index, node in enumerate(nodes)
        if (scan := m.scan_of(node)) is not None and scan is not node
    ]
    return [*lines, *reversed(titles), *beside]


def operator_texts(operators: Sequence[m.Operator]) -> list[str]:
    """The operators of a query from the first, each in a line without its source: `join [y] edge(y, z)`."""
    scans = [m.scan_of(node) for node in operators]
    return [
        title if scan is None or scan is node else f"{title} {_scan_text(scan).removeprefix('scan ')}"
        for node, scan, title in zip(operators, scans, _titles(operators))
    ]


def _titles(nodes: Sequence[m.Operator]) -> list[str]:
    """What operators do, without what they read: of all that lead to a query, from the first."""
    bound: dict[str, None] = {}
    titles = []
    for node in nodes:
        titles.append(_title(node, bound))
        bound |= dict.fromkeys(m.binds(node))
    return titles


def _title(node: m.Operator, bound: Container[str]) -> str:
    match node:
        case m.Unit():
            return "unit"
        case m.Scan():
            return _scan_text(node)
        case m.Join():
            shared = ", ".join(name for name in dict.fromkeys(m.binds(node)) if name in bound)
            return f"join [{shared}]{_range_text(node)}"
        case m.Difference():
            return "difference"
        case m.Select(condition=condition):
            return f"select {expr_text(condition)}"
        case m.Extend(variable=v, expression=e):
            return f"extend {v.name} := {expr_text(e)}"
        case m.Generate():
            return f"generate {generator_text(node)}"
        case m.RuleProbability():
            return f"coin {coin_text(node)}"
    raise TypeError(f"not an operator: {node!r}")


def _range_text(join: m.Join) -> str:
    if join.range is None:
        return ""
    name = terms_text((join.right.terms[join.range.column],))
    return " in order " + " and ".join(f"{name} {b.operator} {expr_text(b.value)}" for b in join.range.bounds)


def _scan_text(scan: m.Scan) -> str:
    return f"scan {scan.part + ' ' if scan.part != 'all' else ''}{scan.relation}({terms_text(scan.terms)})"


def instruction_lines(instruction: m.Instruction, indent: int) -> list[str]:
    pad = "  " * indent
    if isinstance(instruction, m.Store):
        return [f"{pad}{instruction.relation} <-", *query_lines(instruction.query, indent + 1)]
    return [f"{pad}{rule_text(instruction)}"]


def ram_text(ram: m.Ram) -> str:
    """The whole program: the demand that is computed first, relations with their types, facts, strata."""
    rows = []
    if ram.demand is not None:
        rows = ["first", *(f"  {line}" for line in ram_text(ram.demand).split("\n"))]
    rows += [f"constructor {constructor}" for constructor in ram.constructors.values()]
    rows += [f"relation {relation_text(r)}{' certain' if r.is_certain else ''}" for r in ram.relations.values()]
    rows += [f"fact {facts_text(f)}" for f in ram.facts]
    for i, stratum in enumerate(ram.strata):
        how = " (by time)" if stratum.timed else " (recursive)" if stratum.is_recursive else ""
        rows.append(f"stratum {i}{how}: {', '.join(stratum.relations)}")
        for instruction in stratum.full if stratum.timed else stratum.once:
            rows += instruction_lines(instruction, 1)
        if stratum.loop:
            rows.append("  loop")
            for instruction in stratum.loop:
                rows += instruction_lines(instruction, 2)
    rows.append(f"output {', '.join(ram.outputs)}")
    return "\n".join(rows)
