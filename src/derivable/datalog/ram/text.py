"""The printer of RAM."""

from __future__ import annotations

from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.text import expr_text, facts_text, generator_text, rule_text, terms_text


def query_lines(query: m.Query, indent: int) -> list[str]:
    """One operator a line, sources indented below it."""
    pad = "  " * indent
    match query:
        case m.Unit():
            return [f"{pad}unit"]
        case m.Scan(relation=name, terms=terms, part=part):
            return [f"{pad}scan {part + ' ' if part != 'all' else ''}{name}({terms_text(terms)})"]
        case m.Join(left=left, right=right):
            shared = [c for c in m.columns(right) if c in m.columns(left)]
            return [f"{pad}join [{', '.join(shared)}]", *query_lines(left, indent + 1), *query_lines(right, indent + 1)]
        case m.Difference(left=left, right=right):
            return [f"{pad}difference", *query_lines(left, indent + 1), *query_lines(right, indent + 1)]
        case m.Select(source=source, condition=condition):
            return [f"{pad}select {expr_text(condition)}", *query_lines(source, indent + 1)]
        case m.Extend(source=source, variable=v, expression=e):
            return [f"{pad}extend {v.name} := {expr_text(e)}", *query_lines(source, indent + 1)]
        case m.Generate(source=source):
            return [f"{pad}generate {generator_text(query)}", *query_lines(source, indent + 1)]
        case m.Project(source=source, terms=terms):
            return [f"{pad}project [{terms_text(terms)}]", *query_lines(source, indent + 1)]
    raise TypeError(f"not a query: {query!r}")


def operator_text(node: m.Query) -> str:
    """An operator in one line, without what it gets its rows from: `join [y] edge(y, z)`."""
    scan = m.scan_of(node)
    first = query_lines(node, 0)[0]
    return first if scan is None or scan is node else f"{first} {query_lines(scan, 0)[0].removeprefix('scan ')}"


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
