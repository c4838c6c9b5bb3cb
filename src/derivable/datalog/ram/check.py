"""The validator of RAM, called between passes in tests."""

from __future__ import annotations

from derivable.core.diagnostics import LayoutError
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.text import query_lines
from derivable.datalog.rules.check import check_generator
from derivable.datalog.rules.nodes import names
from derivable.datalog.rules.text import generator_text
from derivable.datalog.values.values import same_words


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
                if not same_words(types, ram.relations[instruction.relation].types):
                    raise LayoutError(f"the columns stored into {instruction.relation} have types {types}")
            elif instruction.body not in complete:
                raise LayoutError(f"{instruction.relation} aggregates {instruction.body}, which is not complete")
        complete |= own


def _check(ram: m.Ram, query: m.Query, complete: set[str], own: set[str]) -> None:
    for node in m.steps(query):
        scan, source = m.scan_of(node), m.source(node)
        if scan is not None:
            name = scan.relation
            if name not in ram.relations or len(scan.terms) != len(ram.relations[name].types):
                raise LayoutError(f"a scan of {name} with {len(scan.terms)} columns")
            if name not in complete and name not in own:
                raise LayoutError(f"{name} is read before it is complete")
            if scan.part != "all" and name not in own:
                raise LayoutError(f"{name} does not change here, but its {scan.part} rows are read")
            if isinstance(node, m.Difference) and name in own:
                raise LayoutError(f"{name} is negated in its own stratum")
        if source is not None and not isinstance(node, m.Join):
            missing = m.reads(node) - set(m.columns(source))
            if isinstance(node, m.Generate):
                check_generator(node, generator_text(node))
                missing &= {name for e in node.inputs for name in names(e)}
                missing |= set(m.columns(node)) - set(m.columns(source)) if node.negated else set()
            if missing:
                raise LayoutError(f"columns {sorted(missing)} are not there in `{query_lines(node, 0)[0].strip()}`")
