"""RAM to a column program: the paper's abstract parallel machine (APM), a rule for each operator.

A relation is columns of words and columns of tags, in three parts: `stable`, `recent` (new or improved in the last
round) and what a round finds. A recursive stratum is a loop over these parts; an index of a relation that does not
change is computed once, before the loop. The rows of a recursion are those of a set, into which a round inserts what it
finds; where they are not certain, the tags of all of them go with the set, in its order.

What is no array program (an aggregate, a coin, a foreign predicate or function, integers without a sign) is a call of
the host.

Source: Biberstein et al. 2026, figure 14 and section 4.2. Deviations: RAM says which part of a relation a scan reads,
so a join is one join and not three; the index is of the right side, which is a relation, so that it is static where
the relation does not change; equal nodes are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, Protocol

from derivable.algebra.semiring import TypedSemiring
from derivable.datalog.apm.tables import MASK, ZEROS, Column, Host, LeftToHost, Table, Tables, column_type
from derivable.datalog.kernels.proof_form import ProofForm
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.products import Product, products_of
from derivable.datalog.ram.text import operator_texts
from derivable.datalog.ram.transitive_loop import BASE, linear_loop
from derivable.datalog.rules.nodes import AggregateRule, Relation
from derivable.datalog.rules.text import expr_text, rule_text
from derivable.datalog.scalars.nodes import Const, Var
from derivable.parallel.program import nodes as n
from derivable.parallel.program.text import program_text


class AtOnce(Protocol):
    """What may find the rows of a recursion of products by matrices: the columns of each relation, its rows sorted.

    typed    the semiring of the tags, whose columns are behind those of words; None without tags
    columns  those of the rows that there are before, of each relation, and of the edges of each side that has some
    watch    called with the number of rows before they are made
    """

    def __call__(
        self,
        products: Sequence[Product],
        relations: Sequence[str],
        typed: TypedSemiring | None,
        arrays: Any,
        columns: Sequence[Any],
        watch: Callable[[int], None],
    ) -> Sequence[Any] | None: ...


class _Printed:
    """The host of a program that is only looked at."""

    is_bound = False

    def word(self, constant: Const) -> Any:
        return expr_text(constant)

    def evaluate(self, *arguments: Any) -> Any:
        raise AssertionError("the program has no host")

    call = aggregate = evaluate


def lower(
    ram: m.Ram,
    tags: TypedSemiring | ProofForm | None = None,
    host: Host | None = None,
    at_once: AtOnce | None = None,
    there: Iterable[str] = (),
    may_cut: bool = False,
) -> dict[str, Table]:
    """Relation -> the columns that have its rows, of all relations of a RAM program.

    tags     their semiring, or what sets of proofs are like; None for a run without tags
    host     None for a program that is only looked at
    at_once  what may solve recursions that are products; None if their rounds are those of the rules as they stand
    there    relations of which a run gives all rows
    may_cut  whether rules run in pieces where joins have too many pairs at once
    """
    return _Lowering(ram, tags, host or _Printed(), at_once, frozenset(there), may_cut).program()


def apm_text(ram: m.Ram, tags: TypedSemiring | ProofForm | None = None) -> str:
    """The printed form of the program: the outputs, column by column, those of tags behind those of values."""
    tables = lower(ram if tags is None else ram.tagged or ram, tags)
    shown = {f"{name}.{k}": c for name in ram.outputs for k, c in enumerate(tables[name].all)}
    return program_text(list(shown.values()), list(shown))


class _Lowering(Tables):
    def __init__(
        self,
        ram: m.Ram,
        tags: TypedSemiring | ProofForm | None,
        host: Any,
        at_once: AtOnce | None,
        there: frozenset[str],
        may_cut: bool,
    ):
        super().__init__(tags, host)
        self.ram, self.at_once, self.there, self.may_cut = ram, at_once, there, may_cut
        # As on the host, where this is a matter of the program and k.
        self.read_stable = m.stable_relations(ram)
        self.complete: dict[str, Table] = {}
        # Relations of sets whose order nobody needs.
        self.unordered: dict[str, Table] = {}
        self.parts: dict[tuple[str, str], Table] = {}
        self.stratum_relations: set[str] = set()
        self.pieces = 0

    def program(self) -> dict[str, Table]:
        for stratum in self.ram.strata:
            if self.there.issuperset(stratum.relations):
                self.complete |= {name: self.facts(name) for name in stratum.relations}
                continue
            self.stratum(stratum)
            self.complete.pop(BASE, None)
        return self.complete | self.unordered

    def stratum(self, stratum: m.Stratum) -> None:
        self.stratum_relations = set(stratum.relations)
        for name in stratum.relations:
            if self.ram.relations[name].lattice is not None:
                raise LeftToHost(
                    f"`{name}` has a lattice, whose relations are not computed on a device",
                    hint="leave `device` out: a run without it has lattices",
                    source=self.ram.source,
                    text=self.ram.text,
                    span=self.ram.relations[name].span,
                )
            if stratum.timed is not None:
                raise LeftToHost(
                    f"`{name}` is computed one value after the other of one of its columns, which no device does",
                    hint="leave `device` out: a run without it has such relations",
                    source=self.ram.source,
                    text=self.ram.text,
                    span=self.ram.relations[name].span,
                )
        self.parts = {}
        parts_of = {name: [self.facts(name)] for name in stratum.relations}
        for instruction in stratum.once:
            parts_of[instruction.relation].append(self.instruction(instruction))
        if not stratum.loop:
            self.complete |= {name: self.distinct(name, parts) for name, parts in parts_of.items()}
            return
        begin: dict[str, dict[str, Table]] = {}
        for name, tables in parts_of.items():
            begin[name] = self.begun(name, tables)
            for part, table in begin[name].items():
                self.parts[name, part] = self.state(name, part, table)
        parts_of = {name: [] for name in stratum.relations}
        base = {name: parts["recent"] for name, parts in begin.items()}
        loop = self.loop(stratum, base)
        for instruction in loop:
            parts_of[instruction.relation].append(self.instruction(instruction))
        state = [(name, part) for name, parts in begin.items() for part in parts]
        after = {name: self.advanced(name, parts or [self.nothing(base[name])]) for name, parts in parts_of.items()}
        columns: list[tuple[Column, ...]] = []
        for of in (begin, after):
            columns.append(tuple(column for name, part in state for column in of[name][part].all))
        columns.insert(1, tuple(column for key in state for column in self.parts[key].all))
        widths = [len(self.parts[key].all) for key in state]
        starts = list(accumulate(widths, initial=0))
        going = tuple(start for start, (_, part) in zip(starts, state) if part == "recent")
        last = self.graph(n.Loop, ", ".join(stratum.relations), *columns, going)
        ends: dict[tuple[str, str], Table] = {}
        for key, start, width in zip(state, starts, widths):
            size = last[start].size
            assert size is not None
            ends[key] = self.parts[key].like(last[start : start + width], size)
        for name in begin:
            # Recent rows are left where a limit ends the recursion.
            self.complete[name] = self.everything(name, ends)
        self.shorten(stratum, loop, base)
        for name in begin:
            if not self.complete[name].tags:
                self.unordered[name] = self.complete[name]
            self.complete[name] = self.ordered(self.complete[name])

    def loop(self, stratum: m.Stratum, begin: Mapping[str, Table]) -> tuple[m.Store, ...]:
        """The loop of a stratum; a transitive rule as a linear one, which reads what there is before the recursion."""
        is_tagged = self.typed is not None or self.proofs is not None
        linear = None if self.at_once is None or is_tagged else linear_loop(stratum, BASE)
        if linear is None:
            return stratum.loop
        self.complete[BASE] = begin[linear.relation]
        return (linear,)

    def shorten(self, stratum: m.Stratum, loop: tuple[m.Store, ...], begin: Mapping[str, Table]) -> None:
        """Have the relations of a recursion of products derived at once where that pays."""
        if self.at_once is None:
            return
        is_certain = all(self.is_certain(name) for name in stratum.relations)
        if not is_certain and (self.typed is None or not _has_matrices(self.typed)):
            return
        products = products_of(stratum, loop)
        if not products:
            return
        edges = [side.edges for product in products for side in product.sides if side.edges is not None]
        width = 2 if is_certain else 2 + len(self.dtypes)
        reads, others = (
            tuple(column for table in tables for column in table.all[:width])
            for tables in (
                [*begin.values(), *map(self.stored, edges)],
                [self.complete[name] for name in stratum.relations],
            )
        )
        function = partial(self.at_once, products, stratum.relations, None if is_certain else self.typed)
        rest = self.graph(n.Otherwise, ", ".join(stratum.relations), function, reads, others)
        for k, name in enumerate(stratum.relations):
            columns = rest[k * width : (k + 1) * width]
            size = columns[0].size
            assert size is not None
            tags = self.one(size) if is_certain else columns[2:]
            self.complete[name] = Table(dict(enumerate(columns[:2])), tags, size)

    # Tables

    def facts(self, name: str) -> Table:
        """The facts of a relation, which a run gives. A relation without columns has one of zeros."""
        types = self.ram.relations[name].types
        columns = [column_type(t) for t in types] or [ZEROS]
        has_proofs = self.proofs is not None and not self.is_certain(name)
        return self.inputs(name, columns, [self.proof_type] if has_proofs else self.tag_types)

    def inputs(self, name: str, columns: Sequence[n.Type], tag_types: Sequence[n.Type]) -> Table:
        width = len(columns)
        made = self.graph(n.Given, name, (*columns, *tag_types))
        size = made[0].size
        assert size is not None
        return Table(dict(enumerate(made[:width])), made[width:], size)

    def state(self, name: str, part: str, like: Table) -> Table:
        """The columns of a part of a relation in a round."""
        columns = [replace(c.type, size=None) for c in like.columns.values()]
        made = self.graph(n.Given, f"{part} {name}", (*columns, *(replace(c.type, size=None) for c in like.tags)))
        assert made[0].size is not None
        return like.like(made, made[0].size)

    def begun(self, name: str, tables: Sequence[Table]) -> dict[str, Table]:
        """The state of a relation before the first round: the set of its rows and the recent ones, and where rows are
        not certain the tags of all, and where the recent ones are among them."""
        if self.is_certain(name):
            known, fresh = self.inserted(self.something(tables), None)
            return {"known": known, "recent": fresh}
        recent = self.distinct(name, tables)
        known, _ = self.inserted(recent, None)
        row_numbers = self.row_numbers(recent, known)
        best = tuple(self.graph.one(n.Put, t, row_numbers.columns[0], t, known.size) for t in recent.tags)
        return {"known": replace(known, tags=best), "recent": recent, "row_numbers": row_numbers}

    def is_certain(self, name: str) -> bool:
        """Whether nothing makes the rows of a relation better."""
        return (self.typed is None and self.proofs is None) or self.ram.relations[name].is_certain

    def everything(self, name: str, parts: Mapping[tuple[str, str], Table]) -> Table:
        """All rows of a relation of a recursion."""
        rows = self.elements(parts[name, "known"], parts[name, "recent"])
        return rows if self.is_certain(name) else replace(rows, tags=parts[name, "known"].tags)

    def stable(self, name: str) -> Table:
        """The rows that are not recent."""
        if self.is_certain(name):
            return self.elements(self.parts[name, "known"], self.parts[name, "recent"], True)
        rows, row_numbers = self.everything(name, self.parts), self.parts[name, "row_numbers"]
        leaves = self.constant(False, "bool", row_numbers.size)
        mask = self.constant(True, "bool", rows.size)
        stays = self.graph.one(n.Put, leaves, row_numbers.columns[0], mask, rows.size)
        return self.only(rows, stays)

    # Queries: figure 14

    def instruction(self, instruction: m.Instruction) -> Table:
        """The rows that an instruction adds to its relation."""
        if isinstance(instruction, m.Store):
            return self.stored(instruction)
        relation = self.ram.relations[instruction.relation]
        body = self.complete[instruction.body]
        groups = None if instruction.groups is None else self.complete[instruction.groups]
        return self.aggregated(instruction, relation, body, groups)

    def stored(self, store: m.Store) -> Table:
        first, *others = zip(store.query.operators, store.query.later)
        table = self.first(*first)
        # A table without columns and tags has no rows to cut.
        if not self.may_cut or not table.all or not any(isinstance(node, m.Join) for node, _ in others):
            return self.headed(store, table, others)
        # Each piece has a separate name, as pieces of the same rows may be others.
        self.pieces += 1
        name = f"piece {self.pieces} of {operator_texts([first[0]])[0]}"
        rows = self.inputs(name, [c.type for c in table.columns.values()], [c.type for c in table.tags])
        rows = Table(dict(zip(table.columns, rows.columns.values())), rows.tags, rows.size)
        stored_rows = self.headed(store, rows, others)
        name = store.relation
        folded, is_whole = self.folded(name, stored_rows), not self.is_certain(name)
        made = self.graph(n.Pieces, name, table.all, rows.all, stored_rows.all, folded.all, is_whole)
        size = made[0].size
        assert size is not None
        return stored_rows.like(made, size)

    def folded(self, name: str, table: Table) -> Table:
        """The same, each row once if their tags can be added up."""
        if self.is_certain(name):
            return self.inserted(table, None)[1]
        rows = self.distinct(name, [table])
        if self.proofs is None:
            return rows
        others = [self.of_proofs("one", (), rows.size, [self.proof_type])[0] for _ in table.tags[1:]]
        return replace(rows, tags=(*rows.tags, *others) if table.tags else ())

    def headed(self, store: m.Store, table: Table, others: Sequence[tuple[m.Operator, frozenset[str]]]) -> Table:
        """What the other operators make of the rows of the first one, as rows of the head."""
        for node, needed in others:
            table = self.step(table, node, needed)
        columns: list[Column] = []
        mask: Column | None = None
        for term in store.query.terms:
            value, fine = self.evaluate(term, table)
            assert value is not None
            columns.append(value)
            if fine is not None:
                mask = fine if mask is None else self.logical("logical_and", table.size, mask, fine)
        if not columns:
            columns.append(self.graph.one(n.Constant, 0, replace(ZEROS, size=table.size)))
        headed = Table(dict(enumerate(columns)), table.tags, table.size)
        return headed if mask is None else self.only(headed, mask)

    def first(self, node: m.Operator, needed: frozenset[str]) -> Table:
        return self.scan(node, needed) if isinstance(node, m.Scan) else Table({}, self.one(1), 1)

    def step(self, table: Table, node: m.Operator, needed: frozenset[str]) -> Table:
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
                made = Table({**table.columns, v.name: value}, table.tags, table.size)
                return made if mask is None else self.only(made, mask, needed)
            case m.Generate(relation=str()):
                raise LeftToHost(
                    "an aggregate inside of a recursion has its groups as the recursion looks them up, not on devices",
                    hint="run without device",
                )
            case m.Generate():
                types = dict(zip((t.name if isinstance(t, Var) else None for t in node.outputs), node.types))
                made = list(dict.fromkeys((*table.columns, *m.binds(node))))
                return self.called(node, table, made, {name: column_type(of) for name, of in types.items() if name})
            case m.RuleProbability():
                return self.called(node, table, [name for name in table.columns if name in needed], {})
        raise TypeError(f"not an operator: {node!r}")

    def called(
        self, node: m.Generate | m.RuleProbability, table: Table, made: Sequence[str], types: Mapping[str, n.Type]
    ) -> Table:
        """What a predicate or a coin makes of the rows of a table."""
        names_of_columns = tuple(table.columns), tuple(made)
        result = [table.columns[k].type if k in table.columns else types[k] for k in made]
        function = partial(self.host.call, node, names_of_columns)
        # A table without columns and tags still has a number of rows, which the call gets.
        carried = result or ([] if self.typed is not None else [ZEROS])
        columns_after = self.call(
            operator_texts([node])[0], function, table.all, table.size, [*carried, *self.tag_types], True
        )
        size = columns_after[0].size
        assert size is not None
        return Table(dict(zip(made, columns_after)), columns_after[len(carried) :], size)

    def aggregated(self, rule: AggregateRule, relation: Relation, body: Table, groups: Table | None) -> Table:
        """The rows of an aggregate, from those of its body and those that name its groups."""
        tables = [body] if groups is None else [body, groups]
        result = [column_type(t) for t in relation.types] or [ZEROS]
        function = partial(self.host.aggregate, rule, relation.types, tuple(len(of.all) for of in tables))
        columns = [c for table in tables for c in table.all]
        columns_after = self.call(rule_text(rule), function, columns, body.size, [*result, *self.tag_types], True)
        made = columns_after[0].size
        assert made is not None
        return Table(dict(enumerate(columns_after[: len(result)])), columns_after[len(result) :], made)

    def filtered(self, scan: m.Scan) -> tuple[Table, list[Var | None]]:
        """The rows of a scan that have its constants, and the variables of its other columns, None for a wildcard."""
        table = self.rows_of(scan)
        for position, term in enumerate(scan.terms):
            if isinstance(term, Const):
                word = self.constant(self.host.word(term), "int64", table.size)
                table = self.only(table, self.logical("equal", table.size, table.columns[position], word))
        positions = [position for position, term in enumerate(scan.terms) if not isinstance(term, Const)]
        variables = [scan.terms[position] for position in positions]
        table = Table({position: table.columns[position] for position in positions}, table.tags, table.size)
        return table, [v if isinstance(v, Var) else None for v in variables]

    def rows_of(self, scan: m.Scan) -> Table:
        """The part of a relation that a scan reads."""
        name = scan.relation
        if name not in self.stratum_relations:
            return self.complete[name]
        match scan.part:
            case "recent":
                return self.parts[name, "recent"]
            case "stable":
                return self.stable(name)
        return self.everything(name, self.parts)

    def scan(self, scan: m.Scan, needed: frozenset[str]) -> Table:
        table, variables = self.filtered(scan)
        columns: dict[str, Column] = {}
        mask: Column | None = None
        for variable, column in zip(variables, table.columns.values()):
            if variable is None:
                continue
            there = columns.setdefault(variable.name, column)
            if there is not column:
                same = self.logical("equal", table.size, there, column)
                mask = same if mask is None else self.logical("logical_and", table.size, mask, same)
        scanned = Table(columns, table.tags, table.size)
        return scanned if mask is None else self.only(scanned, mask, needed)

    def join(self, left: Table, scan: m.Scan, needed: frozenset[str]) -> Table:
        right, variables = self.filtered(scan)
        probes: list[Column] = []
        keys: list[Any] = []
        fresh: dict[str, Any] = {}
        repeats: list[Column] = []
        for variable, (key, column) in zip(variables, right.columns.items()):
            if variable is None:
                continue
            if variable.name in left.columns:
                probes.append(left.columns[variable.name])
                keys.append(key)
            elif variable.name in fresh:
                repeats.append(self.logical("equal", right.size, right.columns[fresh[variable.name]], column))
            else:
                fresh[variable.name] = key
        if repeats:
            mask = repeats[0]
            for other in repeats[1:]:
                mask = self.logical("logical_and", right.size, mask, other)
            right = self.only(right, mask)
        index = self.built([right.columns[key] for key in keys], right.size)
        i, j = self.graph(n.Join, tuple(probes), index, left.size)
        size = i.size
        assert size is not None
        columns = {k: self.graph.one(n.Gather, c, i) for k, c in left.columns.items() if k in needed}
        columns |= {k: self.graph.one(n.Gather, right.columns[key], j) for k, key in fresh.items() if k in needed}
        tags = [tuple(self.graph.one(n.Gather, t, rows) for t in of.tags) for of, rows in ((left, i), (right, j))]
        return Table(columns, self.product(size, *tags), size)

    def difference(self, left: Table, scan: m.Scan, needed: frozenset[str]) -> Table:
        right, variables = self.filtered(scan)
        wanted = {key: v.name for v, key in zip(variables, right.columns) if v is not None}
        if len(scan.terms) == 0:
            keys, probes = (), ()
        else:
            keys = tuple(right.columns[key] for key in wanted)
            probes = tuple(left.columns[name] for name in wanted.values())
        index = self.graph.one(n.Build, keys, right.size)
        rows = self.graph.one(n.Find, probes, index, left.size)
        if not right.tags:
            return self.only(left, self.is_absent(rows), needed)
        if self.proofs is not None:
            negated = self.of_proofs("negated", right.tags, right.size, [self.proof_type])
            one = self.of_proofs("one", (), left.size, [self.proof_type])
            factor = self.graph.one(n.Gather, *negated, rows, *one)
            tags = self.product(left.size, left.tags, (factor,))
            # Whether products have a proof is looked at as they are added up.
            mask = None if len(tags) > 1 else self.are_possible(tags, left.size)
            rows_left = replace(left, tags=tags)
            return rows_left if mask is None else self.only(rows_left, mask, needed)
        negated = self.apply("negate", right.size, right.tags)
        factors = zip(negated, self.one(left.size))
        factor = tuple(self.graph.one(n.Gather, there, rows, one) for there, one in factors)
        tags = self.apply("times", left.size, left.tags, factor)
        return self.only(Table(left.columns, tags, left.size), self.is_something(tags, left.size), needed)

    # The end of a block

    def distinct(self, name: str, parts: Sequence[Table]) -> Table:
        """The derived rows, sorted, equal rows added up, without what the semiring discards."""
        appended = self.something(parts)
        if self.may_cut and self.is_certain(name):
            # A set takes pairs in pieces.
            return self.ordered(self.inserted(appended, None)[1])
        columns, groups = self.grouped(tuple(appended.columns.values()), appended.size)
        order, first, group = groups
        size = first.size
        assert size is not None
        rows = Table({k: self.graph.one(n.Gather, c, first) for k, c in zip(appended.columns, columns)}, (), size)
        if self.is_certain(name):
            return replace(rows, tags=self.one(size))
        if self.proofs is not None:
            return replace(rows, tags=self.of_proofs("sums", (*groups, *appended.tags), size, [self.proof_type]))
        assert self.typed is not None
        tags = tuple(self.graph.one(n.Gather, t, order) for t in appended.tags)
        return replace(rows, tags=self.graph(n.Fold, tags, group, size, self.typed.plus, True))

    def grouped(self, columns: Sequence[Column], size: n.Size) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
        """(sorted rows, (original row numbers, group starts, group number of each row))"""
        order = self.graph.one(n.Sort, tuple(columns), size)
        ordered = tuple(self.graph.one(n.Gather, c, order) for c in columns)
        return ordered, (order, *self.graph(n.Unique, ordered, size))

    def advanced(self, name: str, tables: Sequence[Table]) -> dict[str, Table]:
        """The state after a round: what is new or improved is recent."""
        earlier, candidates = self.parts[name, "known"], self.something(tables)
        known, fresh = self.inserted(candidates, earlier)
        if self.is_certain(name):
            return {"known": known, "recent": fresh}
        # Rows are sorted by their numbers in the set, one key.
        row_numbers = self.row_numbers(candidates, known).columns[0]
        (ordered,), groups = self.grouped([row_numbers], candidates.size)
        order, first, _ = groups
        one_each, at = (self.graph.one(n.Gather, column, first) for column in (order, ordered))
        if self.proofs is None:
            best, tags, changed = self.improved(candidates, groups, at, earlier, fresh, known.columns[0])
        else:
            best, tags, changed = self.improved_proofs(name, candidates, groups, at, earlier, fresh)
        chosen = self.graph.one(n.Compact, changed)
        # Also tags that are no better are the ones that rows have now.
        known_tags = tuple(self.graph.one(n.Put, now, at, of, known.size) for now, of in best)
        rows = self.at(Table(candidates.columns, (), candidates.size), self.graph.one(n.Gather, one_each, chosen))
        recent = replace(rows, tags=tuple(self.graph.one(n.Gather, t, chosen) for t in tags))
        moved = Table({0: self.graph.one(n.Gather, at, chosen)}, (), rows.size)
        return {"known": replace(known, tags=known_tags), "recent": recent, "row_numbers": moved}

    def improved(
        self, candidates: Table, groups: tuple[Column, ...], at: Column, earlier: Table, fresh: Table, known: Column
    ) -> tuple[list[tuple[Column, Column]], tuple[Column, ...], Column]:
        """([component] the tags of rows now and those of all rows before, tags of what is recent, which rows are)

        at  where the rows are among those of the set
        """
        assert self.typed is not None
        order, first, group = groups
        size = first.size
        assert size is not None
        tags = tuple(self.graph.one(n.Gather, t, order) for t in candidates.tags)
        delta = self.graph(n.Fold, tags, group, size, self.typed.plus, True)
        nothing = self.tags(self.typed.zero, fresh.size)
        best = [self.graph.one(n.Concatenate, pair) for pair in zip(earlier.tags, nothing)]
        before = [self.graph.one(n.Gather, column, at) for column in best]
        is_new = self.graph.one(n.IsNew, at, known)
        after = self.apply("plus", size, tuple(before), delta)
        is_better = self.logical("logical_not", size, *self.apply("saturated", size, tuple(before), after))
        return list(zip(after, best)), after, self.logical("logical_or", size, is_new, is_better)

    def improved_proofs(
        self, name: str, candidates: Table, groups: tuple[Column, ...], at: Column, earlier: Table, fresh: Table
    ) -> tuple[list[tuple[Column, Column]], tuple[Column, ...], Column]:
        """The same for proofs: what is recent has its new ones alone, where nobody reads the rows that are not."""
        size = at.size
        assert size is not None
        nothing = self.of_proofs("nothing", (), fresh.size, [self.proof_type])
        best = self.graph.one(n.Concatenate, (*earlier.tags, *nothing))
        before = self.graph.one(n.Gather, best, at)
        types = [self.proof_type, self.proof_type, MASK]
        after, news, changed = self.of_proofs("improved", (*groups, before, *candidates.tags), size, types)
        return [(after, best)], (after if name in self.read_stable else news,), changed


def _has_matrices(typed: TypedSemiring) -> bool:
    """Whether matrices of tags may be computed again in each round, zero for all that is not there."""
    semiring = typed.semiring
    is_fine = semiring.idempotent_plus and semiring.commutative and semiring.distributive and semiring.saturated is None
    if not is_fine or not {"float32", "float64", "int64"}.issuperset(typed.dtypes):
        return False
    (is_nothing,) = typed.discard.apply(typed.zero)
    return bool(is_nothing)
