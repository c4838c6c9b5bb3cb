"""The validator of RAM, called between passes in tests."""

from __future__ import annotations

from derivable.core.diagnostics import LayoutError
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.text import operator_texts
from derivable.datalog.rules.check import check_generator
from derivable.datalog.rules.nodes import Negated, names
from derivable.datalog.rules.text import generator_text
from derivable.datalog.values.values import same_words


def check_ram(ram: m.Ram) -> None:
    """Raise LayoutError at the first query that reads a column it has not, or a relation not yet computed."""
    complete: set[str] = set()
    for stratum in ram.strata:
        stratum_relations = set(stratum.relations)
        if stratum.timed is not None:
            check_ram(stratum.timed.times)
            check_ram(stratum.timed.step)
            complete |= stratum_relations
            continue
        for instruction in (*stratum.once, *stratum.loop, *stratum.full):
            if instruction.relation not in stratum_relations:
                raise LayoutError(
                    f"an instruction for {instruction.relation} is in the stratum of {sorted(stratum_relations)}"
                )
            if isinstance(instruction, m.Store):
                _check(ram, instruction.query, complete, stratum_relations, _left_out(instruction))
                types = tuple(t.type for t in instruction.query.terms)
                if not same_words(types, ram.relations[instruction.relation].types):
                    raise LayoutError(f"the columns stored into {instruction.relation} have types {types}")
            elif instruction.body not in complete:
                raise LayoutError(f"{instruction.relation} aggregates {instruction.body}, which is not complete")
        complete |= stratum_relations


def _left_out(store: m.Store) -> set[str]:
    """The relations of its recursion whose rows a store need not derive again."""
    body = () if store.origin is None else store.origin.clause.body
    return {literal.relation for literal in body if isinstance(literal, Negated) and literal.leaves_out}


def _check(ram: m.Ram, query: m.Project, complete: set[str], stratum_relations: set[str], left_out: set[str]) -> None:
    there: set[str] = set()
    for node, title in zip(query.operators, operator_texts(query.operators)):
        scan = m.scan_of(node)
        if scan is not None:
            name = scan.relation
            if name not in ram.relations or len(scan.terms) != len(ram.relations[name].types):
                raise LayoutError(f"a scan of {name} with {len(scan.terms)} columns")
            if name not in complete and name not in stratum_relations:
                raise LayoutError(f"{name} is read before it is complete")
            if scan.part != "all" and name not in stratum_relations:
                raise LayoutError(f"{name} does not change here, but its {scan.part} rows are read")
            if isinstance(node, m.Difference) and name in stratum_relations - left_out:
                raise LayoutError(f"{name} is negated in the stratum that derives it")
        if isinstance(node, m.Generate):
            check_generator(node, generator_text(node))
        free = set() if isinstance(node, m.Generate) and node.negated else set(m.binds(node))
        if missing := m.reads(node) - there - free:
            raise LayoutError(f"columns {sorted(missing)} are not there in `{title}`")
        there |= set(m.binds(node))
    if missing := {name for term in query.terms for name in names(term)} - there:
        raise LayoutError(f"columns {sorted(missing)} are not there in the head of a rule")
