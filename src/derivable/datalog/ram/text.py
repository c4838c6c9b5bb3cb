"""The printer of RAM."""

from __future__ import annotations

from collections.abc import Container, Sequence

from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.text import coin_text, expr_text, facts_text, generator_text, rule_text, terms_text


def query_lines(query: m.Query, indent: int) -> list[str]:
    """One operator a line, sources indented below it."""
    nodes = m.steps(query)
    depths = range(indent + len(nodes) - 1, indent - 1, -1)
    lines = [f"{'  ' * depth}{title}" for depth, title in zip(depths, _titles(nodes))]
    # What operators read beside their sources stands below these.
    beside = [
        f"{'  ' * (depth + 1)}{_scan_text(scan)}"
        for depth, node in zip(depths, nodes)
        if (scan := m.scan_of(node)) is not None and scan is not node
    ]
    return [*reversed(lines), *beside]


def operator_texts(query: m.Query) -> list[str]:
    """The operators of a query from the first, each in a line without its source: `join [y] edge(y, z)`."""
    nodes = m.steps(query)
    scans = [m.scan_of(node) for node in nodes]
    return [
        title if scan is None or scan is node else f"{title} {_scan_text(scan).removeprefix('scan ')}"
        for node, scan, title in zip(nodes, scans, _titles(nodes))
    ]


def operator_text(node: m.Query) -> str:
    """The last operator of a query in one line, without its source."""
    return operator_texts(node)[-1]


def _titles(nodes: Sequence[m.Query]) -> list[str]:
    """What operators do, without what they read: of all that lead to a query, from the first."""
    bound: dict[str, None] = {}
    found = []
    for node in nodes:
        found.append(_title(node, bound))
        bound |= dict.fromkeys(m.binds(node))
    return found


def _title(node: m.Query, bound: Container[str]) -> str:
    match node:
        case m.Unit():
            return "unit"
        case m.Scan():
            return _scan_text(node)
        case m.Join(right=right):
            return f"join [{', '.join(name for name in m.columns(right) if name in bound)}]"
        case m.Difference():
            return "difference"
        case m.Select(condition=condition):
            return f"select {expr_text(condition)}"
        case m.Extend(variable=v, expression=e):
            return f"extend {v.name} := {expr_text(e)}"
        case m.Generate():
            return f"generate {generator_text(node)}"
        case m.Coin():
            return f"coin {coin_text(node)}"
        case m.Project(terms=terms):
            return f"project [{terms_text(terms)}]"
    raise TypeError(f"not a query: {node!r}")


def _scan_text(scan: m.Scan) -> str:
    return f"scan {scan.part + ' ' if scan.part != 'all' else ''}{scan.relation}({terms_text(scan.terms)})"


def instruction_lines(instruction: m.Instruction, indent: int) -> list[str]:
    pad = "  " * indent
    if isinstance(instruction, m.Store):
        return [f"{pad}{instruction.relation} <-", *query_lines(instruction.query, indent + 1)]
    return [f"{pad}{rule_text(instruction)}"]


def ram_text(ram: m.Ram) -> str:
    """The whole program: the demand that is found first, relations with their types, facts, strata."""
    rows = []
    if ram.demand is not None:
        rows = ["first", *(f"  {line}" for line in ram_text(ram.demand).split("\n"))]
    rows += [f"constructor {constructor}" for constructor in ram.constructors.values()]
    rows += [
        f"relation {r.name}({', '.join(map(str, r.types))}){' certain' if r.is_certain else ''}"
        for r in ram.relations.values()
    ]
    rows += [f"fact {facts_text(f)}" for f in ram.facts]
    for i, stratum in enumerate(ram.strata):
        rows.append(f"stratum {i}{' (recursive)' if stratum.is_recursive else ''}: {', '.join(stratum.relations)}")
        for instruction in stratum.once:
            rows += instruction_lines(instruction, 1)
        if stratum.loop:
            rows.append("  loop")
            for instruction in stratum.loop:
                rows += instruction_lines(instruction, 2)
    rows.append(f"output {', '.join(ram.outputs)}")
    return "\n".join(rows)
