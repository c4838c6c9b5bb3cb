"""The printer of APM."""

from __future__ import annotations

from collections.abc import Sequence

from derivable.datalog.apm import nodes as a
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.text import operator_text
from derivable.datalog.rules.text import expr_text, rule_text


def size_text(size: a.Size) -> str:
    match size:
        case a.Rows(relation=name, part=part):
            return f"rows({part} {name})"
        case a.Total(register=name):
            return f"total({name})"
        case a.Found(register=name):
            return f"found({name})"
        case a.Sum(parts=parts):
            return " + ".join(map(size_text, parts))
        case a.Exactly(number=number):
            return str(number)
    raise TypeError(f"not a size: {size!r}")


def _list(registers: Sequence[a.Register]) -> str:
    return f"[{', '.join(r.name for r in registers)}]"


def _some(registers: Sequence[a.Register]) -> str:
    return registers[0].name if len(registers) == 1 else f"({', '.join(r.name for r in registers)})"


def _table(table: a.Table) -> str:
    return f"[{', '.join(r.name for r in table.columns)}; {table.tags.name}]"


def _alloc(instruction: a.Alloc) -> str:
    """Registers of one type, size and kind share their type."""
    groups: dict[tuple, list[str]] = {}
    for register in instruction.registers:
        groups.setdefault((register.is_static, str(register.type), size_text(register.size)), []).append(register.name)
    shown = [
        f"{'static ' if static else ''}{', '.join(names)}: {kind}[{size}]"
        for (static, kind, size), names in groups.items()
    ]
    return f"alloc {'; '.join(shown)}"


def instruction_text(i: a.Instruction) -> str:
    """One instruction in one line."""
    match i:
        case a.Alloc():
            return _alloc(i)
        case a.Load():
            return f"{_table(i.into)} <- load {i.part} {i.relation}"
        case a.Store():
            return f"store {i.part} {i.relation} {_table(i.table)}"
        case a.Fill():
            return f"{i.into.name} <- one"
        case a.Eval():
            sources = ", ".join(f"{name}: {register.name}" for name, register in i.sources.items())
            results = ", ".join(register.name for register in a.results(i))
            return f"{results} <- eval {expr_text(i.expression)} {{{sources}}}"
        case a.Mask():
            return f"{i.into.name} <- {i.test} {_some(i.sources)}"
        case a.TagOperation():
            return f"{i.into.name} <- {i.operation} {_some(i.sources)}"
        case a.Gather():
            return f"{_list(i.into)} <- gather {i.indices.name} {_list(i.sources)}"
        case a.GatherTags():
            return f"{i.into.name} <- gather times {_list(i.indices)} {_list(i.sources)}"
        case a.Choose():
            return f"{i.into.name} <- choose {i.indices.name} {i.source.name} else {i.otherwise.name}"
        case a.Build():
            return f"{i.into.name} <- build {_list(i.columns)}"
        case a.Count():
            return f"{i.into.name} <- count {_list(i.probes)} {i.index.name} {_list(i.columns)}"
        case a.Find():
            return f"{i.into.name} <- find {_list(i.probes)} {i.index.name} {_list(i.columns)}"
        case a.Scan():
            return f"{i.into.name} <- scan {i.source.name}"
        case a.Join():
            sides = f"{_list(i.probes)} {i.index.name} {_list(i.columns)} {i.counts.name} {i.offsets.name}"
            return f"{i.left.name}, {i.right.name} <- join {sides}"
        case a.Compact():
            return f"{i.into.name} <- compact {i.mask.name} {i.offsets.name}"
        case a.Append():
            return f"{i.into.name} <- append {_list(i.sources)}"
        case a.Copy():
            return f"{i.into.name} <- copy {i.source.name}"
        case a.Sort():
            return f"{_table(i.into)} <- sort {_table(i.source)}"
        case a.Unique():
            return f"{_table(i.into)}, {i.count.name} <- unique plus {_table(i.source)}"
        case a.Merge():
            return f"{_table(i.into)} <- merge {_table(i.left)} {_table(i.right)}"
        case a.Call():
            what = operator_text(i.what) if isinstance(i.what, (m.Generate, m.Coin)) else rule_text(i.what)
            groups = f" groups {_table(i.groups)}" if i.groups else ""
            return f"{_table(i.into)}, {i.count.name} <- call {{{what}}} {_table(i.source)}{groups}"
    raise TypeError(f"not an instruction: {i!r}")


def apm_text(program: a.Program) -> str:
    """The whole program: its strata, their blocks, an instruction a line."""
    rows = []
    for number, stratum in enumerate(program.strata):
        rows.append(f"stratum {number}{' (recursive)' if stratum.loop else ''}: {', '.join(stratum.relations)}")
        for name, block in (("once", stratum.once), ("loop", stratum.loop)):
            if block:
                rows.append(f"  {name}")
                rows += [f"    {instruction_text(instruction)}" for instruction in block]
    return "\n".join(rows)
