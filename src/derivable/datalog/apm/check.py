"""The validator of APM, called between passes in tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from derivable.core.diagnostics import LayoutError
from derivable.datalog.apm import nodes as a
from derivable.datalog.apm.text import instruction_text, size_text
from derivable.datalog.rules.nodes import variables
from derivable.datalog.values.values import ValueType


def check_apm(program: a.Program) -> None:
    """Raise LayoutError at the first instruction that is no valid one, with what is wrong and its text.

    Every register is allocated once, then assigned once, then read; types and sizes are what the instruction makes; a
    static register depends on nothing that changes; a relation is read when it is complete, or in its own stratum.
    """
    complete: set[str] = set()
    for stratum in program.strata:
        for block in (stratum.once, stratum.loop):
            _Block(program, set(stratum.relations), complete).check(block)
        complete |= set(stratum.relations)


def _parts(size: a.Size) -> tuple[a.Size, ...]:
    return tuple(part for each in size.parts for part in _parts(each)) if isinstance(size, a.Sum) else (size,)


class _Block:
    def __init__(self, program: a.Program, own: set[str], complete: set[str]):
        self.program, self.own, self.complete = program, own, complete
        self.allocated: dict[str, a.Register] = {}
        self.assigned: set[str] = set()
        self.place = ""

    def check(self, block: a.Block) -> None:
        for instruction in block:
            self.place = instruction_text(instruction)
            if isinstance(instruction, a.Alloc):
                for register in instruction.registers:
                    self.allocate(register)
                continue
            for register in a.operands(instruction):
                self.read(register)
            made = a.results(instruction)
            if isinstance(instruction, a.Call):
                # What a call allocates has a size that it finds: the count is there first.
                self.assign(instruction.count)
                made = instruction.into.registers
                for register in made:
                    self.allocate(register)
            for register in made:
                self.assign(register)
            if any(r.is_static for r in made) and not all(r.is_static for r in a.operands(instruction)):
                moving = next(r for r in a.operands(instruction) if not r.is_static)
                self.fail(f"a static register depends on {moving.name}, which is not static")
            self.instruction(instruction)

    def fail(self, what: str) -> NoReturn:
        raise LayoutError(f"{what} in `{self.place}`")

    def allocate(self, register: a.Register) -> None:
        if register.name in self.allocated:
            self.fail(f"{register.name} is allocated twice")
        for part in _parts(register.size):
            if isinstance(part, (a.Total, a.Found)):
                counts = self.allocated.get(part.register)
                if part.register not in self.assigned:
                    self.fail(f"the size {size_text(part)} is not known yet")
                if register.is_static and counts is not None and not counts.is_static:
                    self.fail(f"the size of static {register.name} depends on {part.register}, which is not static")
            elif isinstance(part, a.Rows) and register.is_static and part.relation in self.own:
                self.fail(f"the size of static {register.name} depends on {part.relation}, which changes")
        self.allocated[register.name] = register

    def read(self, register: a.Register) -> None:
        if register.name not in self.assigned:
            self.fail(f"{register.name} is read before it is assigned")
        if self.allocated.get(register.name, register) != register:
            self.fail(f"{register.name} is not what was allocated")

    def assign(self, register: a.Register) -> None:
        if register.name in self.assigned:
            self.fail(f"{register.name} is assigned twice")
        if register.name not in self.allocated and register.type != a.COUNT:
            self.fail(f"{register.name} is assigned before it is allocated")
        if self.allocated.setdefault(register.name, register) != register:
            self.fail(f"{register.name} is not what was allocated")
        self.assigned.add(register.name)

    # What instructions ask of types and sizes

    def types(self, registers: Sequence[a.Register], wanted: Sequence[a.Type]) -> None:
        if len(registers) != len(wanted):
            self.fail(f"{len(registers)} registers where {len(wanted)} are wanted")
        for register, kind in zip(registers, wanted):
            both = register.type, kind
            if register.type != kind and not all(isinstance(t, ValueType) and t.family == "entity" for t in both):
                self.fail(f"{register.name} has type {register.type} where {kind} is wanted")

    def sizes(self, registers: Sequence[a.Register], wanted: a.Size) -> None:
        for register in registers:
            if _parts(register.size) != _parts(wanted):
                self.fail(f"{register.name} has size {size_text(register.size)} where {size_text(wanted)} is wanted")

    def table(self, table: a.Table, like: a.Table | None = None, size: a.Size | None = None) -> None:
        """A table whose columns are of one length, with the types of another one."""
        self.types([table.tags], [a.TAG])
        self.sizes(table.registers, table.size if size is None else size)
        if like is not None:
            self.types(table.registers, [r.type for r in like.registers])

    def relation(self, name: str, table: a.Table) -> None:
        if name not in self.program.relations:
            self.fail(f"the relation {name} is not known")
        self.types(table.columns, self.program.relations[name].types)
        self.table(table)

    def instruction(self, i: a.Instruction) -> None:
        match i:
            case a.Load(into=into, relation=name, part=part):
                self.relation(name, into)
                self.sizes(into.registers, a.Rows(name, part))
                if name not in self.own and (name not in self.complete or part != "stable"):
                    self.fail(f"{part} rows of {name} are read, which is not complete")
                if name in self.own and any(r.is_static for r in into.registers):
                    self.fail(f"a static register depends on {name}, which changes")
            case a.Store(relation=name, table=table):
                self.relation(name, table)
                if name not in self.own:
                    self.fail(f"{name} is stored outside of its stratum")
            case a.Fill(into=into):
                self.types([into], [a.TAG])
            case a.Eval():
                self.eval(i)
            case a.Mask(into=into, test=test, sources=sources):
                self.sizes(sources, into.size)
                kinds = {"absent": [a.INDEX], "nonzero": [a.TAG], "changed": [a.TAG] * 2, "not": [a.MASK]}
                kinds |= {"and": [a.MASK] * 2, "equal": [sources[0].type] * 2}
                self.types([*sources, into], [*kinds[test], a.MASK])
            case a.TagOperation(into=into, operation=operation, sources=sources):
                self.sizes(sources, into.size)
                self.types([*sources, into], [a.TAG] * (2 if operation == "negate" else 3))
            case a.Gather(into=into, indices=indices, sources=sources):
                self.types([indices, *into], [a.INDEX, *(s.type for s in sources)])
                self.sizes(into, indices.size)
                self.sizes(sources, sources[0].size)
            case a.GatherTags(into=into, indices=indices, sources=sources):
                self.types([*indices, *sources, into], [a.INDEX] * len(sources) + [a.TAG] * (len(sources) + 1))
                self.sizes(indices, into.size)
            case a.Choose(into=into, indices=indices, source=source, otherwise=otherwise):
                self.types([indices, source, otherwise], [a.INDEX, into.type, into.type])
                self.sizes([indices, otherwise], into.size)
            case a.Build(into=into, columns=columns):
                self.types([into], [a.HASH])
                self.sizes(columns, into.size)
            case a.Count() | a.Find():
                self.probes(i.probes, i.columns, i.index, i.into.size)
                self.types([i.into], [a.INDEX])
            case a.Join():
                self.probes(i.probes, i.columns, i.index, i.counts.size)
                self.types([i.counts, i.offsets, i.left, i.right], [a.INDEX] * 4)
                self.sizes([i.offsets], i.counts.size)
                self.sizes([i.left, i.right], a.Total(i.counts.name))
            case a.Scan(into=into, source=source):
                self.types([into], [a.INDEX])
                if source.type not in (a.INDEX, a.MASK):
                    self.fail(f"{source.name} has type {source.type} where counts or a mask are wanted")
                self.sizes([into], source.size)
            case a.Compact(into=into, mask=mask, offsets=offsets):
                self.types([mask, offsets, into], [a.MASK, a.INDEX, a.INDEX])
                self.sizes([offsets], mask.size)
                self.sizes([into], a.Total(mask.name))
            case a.Append(into=into, sources=sources):
                self.types(sources, [into.type] * len(sources))
                self.sizes([into], a.Sum(tuple(s.size for s in sources)))
            case a.Copy(into=into, source=source):
                self.types([into], [source.type])
            case a.Sort(into=into, source=source):
                self.table(source)
                self.table(into, source, source.size)
            case a.Unique(into=into, count=count, source=source):
                self.table(source)
                self.table(into, source, source.size)
                self.types([count], [a.COUNT])
            case a.Merge(into=into, left=left, right=right):
                self.table(left)
                self.table(right, left)
                self.table(into, left, a.Sum((left.size, right.size)))
            case a.Call(into=into, count=count, source=source, groups=groups):
                for table in (source, groups):
                    if table is not None:
                        self.table(table)
                self.types([count], [a.COUNT])
                self.table(into, size=a.Found(count.name))

    def eval(self, i: a.Eval) -> None:
        for v in variables(i.expression):
            if v.name not in i.sources:
                self.fail(f"the variable {v.name} has no register")
            self.types([i.sources[v.name]], [v.type])
        made = [r for r in (i.into, i.holds) if r is not None]
        wanted = ([i.expression.type] if i.into is not None else []) + ([a.MASK] if i.holds is not None else [])
        self.types(made, wanted)
        for register in made:
            self.sizes(list(i.sources.values()), register.size)

    def probes(
        self, probes: Sequence[a.Register], columns: Sequence[a.Register], index: a.Register, size: a.Size
    ) -> None:
        self.types([index, *probes], [a.HASH, *(c.type for c in columns)])
        self.sizes(probes, size)
        self.sizes(columns, index.size)


def instructions(program: a.Program) -> Iterator[a.Instruction]:
    """All instructions of a program in order."""
    for stratum in program.strata:
        yield from stratum.once
        yield from stratum.loop
