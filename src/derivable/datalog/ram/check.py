"""The validator of RAM, called between passes in tests."""

from __future__ import annotations

from derivable.core.diagnostics import LayoutError
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.text import query_lines
from derivable.datalog.rules.nodes import Var, names


def check_ram(ram: m.Ram) -> None:
    """Raise LayoutError at the first query that reads a column it has not, or a relation not yet computed."""
    complete: set[str] = set()
    for stratum in ram.strata:
        own = set(stratum.relations)
        for instruction in (*stratum.once, *stratum.loop, *stratum.full):
            if instruction.relation not in own:
                raise LayoutError(f"an instruction for {instruction.relation} is in the stratum of {sorted(own)}")
            if isinstance(instruction, m.Store):
                _check(ram, instruction.query, complete, own)
                types = tuple(t.type for t in instruction.query.terms)
                if types != ram.relations[instruction.relation].types:
                    raise LayoutError(f"the columns stored into {instruction.relation} have types {types}")
            elif instruction.body not in complete:
                raise LayoutError(f"{instruction.relation} aggregates {instruction.body}, which is not complete")
        complete |= own


def _check(ram: m.Ram, query: m.Query, complete: set[str], own: set[str]) -> None:
    def need(used: set[str], source: m.Query) -> None:
        missing = used - set(m.columns(source))
        if missing:
            raise LayoutError(f"columns {sorted(missing)} are not there in `{query_lines(query, 0)[0].strip()}`")

    match query:
        case m.Scan(relation=name, terms=terms, part=part):
            if name not in ram.relations or len(terms) != len(ram.relations[name].types):
                raise LayoutError(f"a scan of {name} with {len(terms)} columns")
            if name not in complete and name not in own:
                raise LayoutError(f"{name} is read before it is complete")
            if part != "all" and name not in own:
                raise LayoutError(f"{name} does not change here, but its {part} rows are read")
        case m.Join(left=left, right=right):
            _check(ram, left, complete, own)
            _check(ram, right, complete, own)
        case m.Difference(left=left, right=right):
            _check(ram, left, complete, own)
            _check(ram, right, complete, own)
            need({t.name for t in right.terms if isinstance(t, Var)}, left)
            if right.relation in own:
                raise LayoutError(f"{right.relation} is negated in its own stratum")
        case m.Select(source=source, condition=condition):
            _check(ram, source, complete, own)
            need(names(condition), source)
        case m.Extend(source=source, expression=e):
            _check(ram, source, complete, own)
            need(names(e), source)
        case m.Range(source=source, low=low, high=high):
            _check(ram, source, complete, own)
            need(names(low) | names(high), source)
        case m.Project(source=source, terms=terms):
            _check(ram, source, complete, own)
            need({n for t in terms for n in names(t)}, source)
