"""RAM to APM: `compile :: RAM -> instructions x registers`, a rule for each operator.

Source: Biberstein et al. 2026, figure 14 and section 4.2. Deviations: RAM says which part of a relation a scan reads,
so a join is one join and not three; the index is of the right side, which is a relation, so that it is static where
the relation does not change; equal instructions of a block are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from derivable.datalog.apm import nodes as a
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.nodes import Relation, names
from derivable.datalog.scalars.nodes import Apply, Const, Expr, Var
from derivable.datalog.values.values import BOOL


def lower(ram: m.Ram) -> a.Program:
    """The APM program of a RAM program."""
    return a.Program(ram.relations, tuple(stratum(ram, number) for number in range(len(ram.strata))), ram.outputs)


def stratum(ram: m.Ram, number: int) -> a.Stratum:
    """The blocks of a stratum."""
    given = ram.strata[number]
    # Names of both blocks are different.
    fresh = _Names()
    once = _Compiler(ram.relations, set(given.relations), fresh, is_loop=False)
    for instruction in given.once:
        once.instruction(instruction)
    for name in given.relations:
        once.begin(name, is_recursive=bool(given.loop))
    if not given.loop:
        return a.Stratum(given.relations, tuple(once.code), ())
    loop = _Compiler(ram.relations, set(given.relations), fresh, is_loop=True)
    for instruction in given.loop:
        loop.instruction(instruction)
    for name in given.relations:
        loop.advance(name)
    return a.Stratum(given.relations, tuple(once.code), tuple(loop.code))


class _Names:
    """Fresh names of registers: a letter for what they hold, and a number."""

    def __init__(self):
        self.count = 0

    def __call__(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"


@dataclass(frozen=True)
class _Table:
    """A table with named columns."""

    columns: Mapping[str, a.Register]
    tags: a.Register

    @property
    def size(self) -> a.Size:
        return self.tags.size


class _Compiler:
    """Compiles the instructions of one block.

    own  the relations that change while the block runs again and again
    """

    def __init__(self, relations: Mapping[str, Relation], own: set[str], fresh: _Names, is_loop: bool):
        self.relations, self.own, self.fresh, self.is_loop = relations, own, fresh, is_loop
        self.code: list[a.Instruction] = []
        self.known: dict[tuple, tuple[a.Register, ...]] = {}

    # Emission

    def emit(
        self,
        key: tuple,
        wanted: Sequence[tuple[str, a.Type, a.Size]],
        make: Callable[..., a.Instruction],
        is_static: bool = True,
    ) -> tuple[a.Register, ...]:
        """The results of an instruction: registers (stem, type, size), which are allocated before it.

        Of an instruction that is there already, by its key, the results of that.
        """
        if key in self.known:
            return self.known[key]
        static = is_static and self.is_loop and all(r.is_static for r in _registers(key))
        found = tuple(a.Register(self.fresh(stem), kind, size, static) for stem, kind, size in wanted)
        self.code.append(a.Alloc(found))
        self.code.append(make(*found))
        self.known[key] = found
        return found

    def load(self, name: str, part: a.Part) -> a.Table:
        size, types = a.Rows(name, part), self.relations[name].types
        wanted = [*(("x", t, size) for t in types), ("t", a.TAG, size)]
        found = self.emit(
            ("load", name, part),
            wanted,
            lambda *r: a.Load(a.Table(r[:-1], r[-1]), name, part),
            is_static=name not in self.own,
        )
        return a.Table(found[:-1], found[-1])

    def gather(self, indices: a.Register, sources: Sequence[a.Register]) -> tuple[a.Register, ...]:
        if not sources:
            return ()
        wanted = [(_stem(source.type), source.type, indices.size) for source in sources]
        return self.emit(("gather", indices, *sources), wanted, lambda *r: a.Gather(r, indices, tuple(sources)))

    def mask(self, test: Any, *sources: a.Register) -> a.Register:
        wanted = [("m", a.MASK, sources[0].size)]
        return self.emit(("mask", test, *sources), wanted, lambda r: a.Mask(r, test, sources))[0]

    def tags(self, operation: Any, *sources: a.Register) -> a.Register:
        wanted = [("t", a.TAG, sources[0].size)]
        return self.emit((operation, *sources), wanted, lambda r: a.TagOperation(r, operation, sources))[0]

    def choose(self, indices: a.Register, source: a.Register, otherwise: a.Register) -> a.Register:
        wanted = [(_stem(source.type), source.type, indices.size)]
        key = ("choose", indices, source, otherwise)
        return self.emit(key, wanted, lambda r: a.Choose(r, indices, source, otherwise))[0]

    def compact(self, mask: a.Register) -> a.Register:
        """The numbers of the rows where a mask holds."""
        (offsets,) = self.emit(("scan", mask), [("o", a.INDEX, mask.size)], lambda r: a.Scan(r, mask))
        wanted = [("i", a.INDEX, a.Total(mask.name))]
        return self.emit(("compact", mask, offsets), wanted, lambda r: a.Compact(r, mask, offsets))[0]

    def build(self, columns: tuple[a.Register, ...], size: a.Size, like: a.Register) -> a.Register:
        """An index of a table by some columns, none for all rows; `like` is a register of the table."""
        return self.emit(("build", like, *columns), [("h", a.HASH, size)], lambda r: a.Build(r, columns))[0]

    def find(self, probes: tuple[a.Register, ...], size: a.Size, table: a.Table, like: a.Register) -> a.Register:
        index = self.build(table.columns, table.size, table.tags)
        key = ("find", like, index, *probes, *table.columns)
        return self.emit(key, [("i", a.INDEX, size)], lambda r: a.Find(r, probes, index, table.columns))[0]

    def evaluate(
        self, e: Expr, table: _Table, is_condition: bool = False
    ) -> tuple[a.Register | None, a.Register | None]:
        """(the value, where there is one) of an expression; of a condition (None, where it holds)."""
        if isinstance(e, Var) and not is_condition:
            return table.columns[e.name], None
        sources = {name: table.columns[name] for name in sorted(names(e))}
        size, fails = table.size, not isinstance(e, Const)
        wanted: list[tuple[str, a.Type, a.Size]] = [] if is_condition else [("x", e.type, size)]
        wanted += [("m", a.MASK, size)] if fails else []

        def make(*r: a.Register) -> a.Eval:
            return a.Eval(None if is_condition else r[0], r[-1] if fails else None, e, sources)

        found = self.emit(("eval", e, is_condition, table.tags, *sources.items()), wanted, make)
        return None if is_condition else found[0], found[-1] if fails else None

    # Tables

    def only(self, table: _Table, mask: a.Register, needed: Iterable[str]) -> _Table:
        """The rows of a table where a mask holds."""
        indices = self.compact(mask)
        kept = [name for name in table.columns if name in set(needed)]
        *columns, tags = self.gather(indices, [*(table.columns[name] for name in kept), table.tags])
        return _Table(dict(zip(kept, columns)), tags)

    def rows_of(self, scan: m.Scan) -> a.Table:
        """The part of a relation that a scan reads."""
        name = scan.relation
        if name not in self.own:
            return self.load(name, "stable")
        if scan.part != "all":
            return self.load(name, scan.part)
        stable, recent = self.load(name, "stable"), self.load(name, "recent")
        return self.appended(stable, recent)

    def appended(self, first: a.Table, second: a.Table) -> a.Table:
        size = a.Sum((first.size, second.size))
        found = [
            self.emit(("append", x, y), [(_stem(x.type), x.type, size)], lambda r, both=(x, y): a.Append(r, both))[0]
            for x, y in zip(first.registers, second.registers)
        ]
        return a.Table(tuple(found[:-1]), found[-1])

    def filtered(self, scan: m.Scan) -> tuple[a.Table, list[Var | None]]:
        """The rows of a scan that have its constants, and the variables of its other columns, None for a wildcard."""
        table = self.rows_of(scan)
        for position, term in enumerate(scan.terms):
            if not isinstance(term, Const):
                continue
            column = Var(f"#{position}", term.type)
            named = _Table({column.name: table.columns[position]}, table.tags)
            _, mask = self.evaluate(Apply("==", (column, term), BOOL), named, is_condition=True)
            assert mask is not None
            found = self.gather(self.compact(mask), table.registers)
            table = a.Table(found[:-1], found[-1])
        kept = [position for position, term in enumerate(scan.terms) if not isinstance(term, Const)]
        variables = [scan.terms[position] for position in kept]
        table = a.Table(tuple(table.columns[position] for position in kept), table.tags)
        return table, [v if isinstance(v, Var) else None for v in variables]

    # Queries: figure 14

    def query(self, store: m.Store) -> _Table:
        nodes = m.steps(store.query.source)
        later = [m.reads(store.query)]
        for node in reversed(nodes):
            later.append(later[-1] | m.reads(node))
        first, *others = zip(nodes, reversed(later[:-1]))
        table = self.first(*first)
        for node, needed in others:
            table = self.step(table, node, needed)
        return table

    def first(self, node: m.Query, needed: set[str]) -> _Table:
        if isinstance(node, m.Scan):
            return self.scan(node, needed)
        assert isinstance(node, m.Unit)
        (tags,) = self.emit(("one",), [("t", a.TAG, a.Exactly(1))], a.Fill)
        return _Table({}, tags)

    def step(self, table: _Table, node: m.Query, needed: set[str]) -> _Table:
        match node:
            case m.Join(right=right):
                return self.join(table, right, needed)
            case m.Difference(right=right):
                return self.difference(table, right, needed)
            case m.Select(condition=condition):
                _, mask = self.evaluate(condition, table, is_condition=True)
                assert mask is not None
                return self.only(table, mask, needed)
            case m.Extend(variable=v, expression=e):
                value, mask = self.evaluate(e, table)
                assert value is not None
                made = _Table({**table.columns, v.name: value}, table.tags)
                return made if mask is None else self.only(made, mask, needed)
            case m.Generate():
                return self.generate(table, node)
            case m.Coin():
                made = tuple(name for name in table.columns if name in needed)
                return self.called(table, node, made, [table.columns[name].type for name in made])
        raise TypeError(f"not an operator: {node!r}")

    def scan(self, scan: m.Scan, needed: set[str]) -> _Table:
        table, variables = self.filtered(scan)
        columns: dict[str, a.Register] = {}
        mask: a.Register | None = None
        for variable, column in zip(variables, table.columns):
            if variable is None:
                continue
            there = columns.setdefault(variable.name, column)
            if there is not column:
                same = self.mask("equal", there, column)
                mask = same if mask is None else self.mask("and", mask, same)
        found = _Table(columns, table.tags)
        return found if mask is None else self.only(found, mask, needed)

    def join(self, left: _Table, scan: m.Scan, needed: set[str]) -> _Table:
        right, variables = self.filtered(scan)
        probes, keys, fresh, repeats = [], [], {}, []
        for variable, column in zip(variables, right.columns):
            if variable is None:
                continue
            if variable.name in left.columns:
                probes.append(left.columns[variable.name])
                keys.append(column)
            elif variable.name in fresh:
                repeats.append((fresh[variable.name], column))
            else:
                fresh[variable.name] = column
        if repeats:
            mask = self.mask("equal", *repeats[0])
            for pair in repeats[1:]:
                mask = self.mask("and", mask, self.mask("equal", *pair))
            *found, tags = self.gather(self.compact(mask), [*keys, *fresh.values(), right.tags])
            keys, fresh = found[: len(keys)], dict(zip(fresh, found[len(keys) :]))
            right = a.Table((), tags)
        probed, key = tuple(probes), tuple(keys)
        index = self.build(key, right.size, right.tags)
        size = left.size
        (counts,) = self.emit(
            ("count", left.tags, index, *probed), [("c", a.INDEX, size)], lambda r: a.Count(r, probed, index, key)
        )
        (offsets,) = self.emit(("scan", counts), [("o", a.INDEX, size)], lambda r: a.Scan(r, counts))
        pairs = a.Total(counts.name)
        i, j = self.emit(
            ("join", left.tags, index, *probed),
            [("i", a.INDEX, pairs), ("j", a.INDEX, pairs)],
            lambda i, j: a.Join(i, j, probed, index, key, counts, offsets),
        )
        kept = [name for name in left.columns if name in needed]
        taken = [name for name in fresh if name in needed]
        columns = self.gather(i, [left.columns[name] for name in kept])
        columns += self.gather(j, [fresh[name] for name in taken])
        (tags,) = self.emit(
            ("gather times", i, j, left.tags, right.tags),
            [("t", a.TAG, pairs)],
            lambda r: a.GatherTags(r, (i, j), (left.tags, right.tags)),
        )
        return _Table(dict(zip([*kept, *taken], columns)), tags)

    def difference(self, left: _Table, scan: m.Scan, needed: set[str]) -> _Table:
        right, variables = self.filtered(scan)
        probes = tuple(left.columns[v.name] for v in variables if v is not None)
        rows = self.find(probes, left.size, right, left.tags)
        (one,) = self.emit(("one", left.tags), [("t", a.TAG, left.size)], a.Fill)
        factor = self.choose(rows, self.tags("negate", right.tags), one)
        tags = self.tags("times", left.tags, factor)
        return self.only(_Table(left.columns, tags), self.mask("nonzero", tags), needed)

    def generate(self, table: _Table, node: m.Generate) -> _Table:
        types = dict(zip((t.name if isinstance(t, Var) else None for t in node.outputs), node.types))
        made = tuple(name for name in m.columns(node) if name in table.columns or name in types)
        columns = [table.columns[name].type if name in table.columns else types[name] for name in made]
        return self.called(table, node, made, columns)

    def called(self, table: _Table, node: m.Generate | m.Coin, made: tuple[str, ...], columns: Sequence[Any]) -> _Table:
        """What a call makes of the rows of a table: `columns` are the types of the columns `made`."""
        given = a.Table(tuple(table.columns.values()), table.tags)
        *found, tags = self.call(node, given, columns, (tuple(table.columns), made))
        return _Table(dict(zip(made, found)), tags)

    def call(
        self,
        what: Any,
        source: a.Table,
        types: Sequence[Any],
        names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
        groups: a.Table | None = None,
    ) -> tuple[a.Register, ...]:
        """The columns and tags that a call gives."""
        count = self.fresh("n")
        size = a.Found(count)
        static = self.is_loop and all(r.is_static for r in (*source.registers, *(groups.registers if groups else ())))
        found = tuple(a.Register(self.fresh("x"), t, size, static) for t in types)
        tags = a.Register(self.fresh("t"), a.TAG, size, static)
        number = a.Register(count, a.COUNT, a.Exactly(1), static)
        self.code.append(a.Call(a.Table(found, tags), number, what, source, groups, names))
        return *found, tags

    # Instructions

    def instruction(self, instruction: m.Instruction) -> None:
        """Add the rows of an instruction to `delta`."""
        name = instruction.relation
        if not isinstance(instruction, m.Store):
            body = self.load(instruction.body, "stable")
            groups = getattr(instruction, "groups", None)
            asked = None if groups is None else self.load(groups, "stable")
            found = self.call(instruction, body, self.relations[name].types, groups=asked)
            self.code.append(a.Store(name, "delta", a.Table(found[:-1], found[-1])))
            return
        table = self.query(instruction)
        columns: list[a.Register] = []
        mask: a.Register | None = None
        for term in instruction.query.terms:
            value, fine = self.evaluate(term, table)
            assert value is not None
            columns.append(value)
            if fine is not None:
                mask = fine if mask is None else self.mask("and", mask, fine)
        tags = table.tags
        if mask is not None:
            *columns, tags = self.gather(self.compact(mask), [*columns, tags])
        self.code.append(a.Store(name, "delta", a.Table(tuple(columns), tags)))

    def distinct_delta(self, name: str) -> a.Table:
        """What was found, sorted, equal rows added up, without what the semiring discards."""
        delta = self.load(name, "delta")
        found = self.gather(self.compact(self.mask("nonzero", delta.tags)), delta.registers)
        size = found[-1].size
        wanted: list[tuple[str, a.Type, a.Size]] = [(_stem(r.type), r.type, size) for r in found]
        source = a.Table(found[:-1], found[-1])
        ordered = self.emit(("sort", *found), wanted, lambda *r: a.Sort(a.Table(r[:-1], r[-1]), source))
        table = a.Table(ordered[:-1], ordered[-1])
        *unique, count = self.emit(
            ("unique", *ordered),
            [*wanted, ("n", a.COUNT, a.Exactly(1))],
            lambda *r: a.Unique(a.Table(r[:-2], r[-2]), r[-1], table),
        )
        kept = [
            self.emit(
                ("copy", r, count), [(_stem(r.type), r.type, a.Found(count.name))], lambda to, r=r: a.Copy(to, r)
            )[0]
            for r in unique
        ]
        if self.relations[name].is_certain:
            (one,) = self.emit(("one", kept[-1]), [("t", a.TAG, kept[-1].size)], a.Fill)
            return a.Table(tuple(kept[:-1]), one)
        return a.Table(tuple(kept[:-1]), kept[-1])

    def begin(self, name: str, is_recursive: bool) -> None:
        """The end of the first block: what was found is recent, or, where nothing is recursive, all there is."""
        self.code.append(a.Store(name, "recent" if is_recursive else "stable", self.distinct_delta(name)))

    def advance(self, name: str) -> None:
        """The end of a round: recent rows become stable, new and improved ones recent."""
        delta = self.distinct_delta(name)
        everything = self.merge(self.load(name, "stable"), self.load(name, "recent"))
        rows = self.find(delta.columns, delta.size, everything, delta.tags)
        is_new = self.mask("absent", rows)
        new = self.gather(self.compact(is_new), delta.registers)
        if self.relations[name].is_certain:
            # Nothing makes certain rows better.
            self.code.append(a.Store(name, "recent", a.Table(new[:-1], new[-1])))
            self.code.append(a.Store(name, "stable", everything))
            return
        # Rows that were there, with the tags before and after.
        old = self.compact(self.mask("not", is_new))
        *columns, added, there = self.gather(old, [*delta.registers, rows])
        (before,) = self.gather(there, [everything.tags])
        after = self.tags("plus", before, added)
        changed = self.mask("changed", before, after)
        improved = self.gather(self.compact(changed), [*columns, after])
        recent = self.merge(a.Table(new[:-1], new[-1]), a.Table(improved[:-1], improved[-1]))
        self.code.append(a.Store(name, "recent", recent))
        # What is not recent now is stable, with the tag that it has now.
        touched = self.find(everything.columns, everything.size, a.Table(tuple(columns), after), everything.tags)
        tags = self.choose(touched, after, everything.tags)
        leaves = self.choose(touched, changed, self.mask("not", self.mask("absent", touched)))
        stable = self.gather(self.compact(self.mask("not", leaves)), [*everything.columns, tags])
        self.code.append(a.Store(name, "stable", a.Table(stable[:-1], stable[-1])))

    def merge(self, left: a.Table, right: a.Table) -> a.Table:
        size = a.Sum((left.size, right.size))
        found = self.emit(
            ("merge", *left.registers, *right.registers),
            [(_stem(r.type), r.type, size) for r in left.registers],
            lambda *r: a.Merge(a.Table(r[:-1], r[-1]), left, right),
        )
        return a.Table(found[:-1], found[-1])


def _stem(kind: a.Type) -> str:
    """The letter of registers of a type."""
    letters: dict[a.Type, str] = {a.TAG: "t", a.MASK: "m", a.INDEX: "i"}
    return letters.get(kind, "x")


def _registers(key: Any) -> Iterable[a.Register]:
    for part in key:
        if isinstance(part, a.Register):
            yield part
        elif isinstance(part, tuple):
            yield from _registers(part)
