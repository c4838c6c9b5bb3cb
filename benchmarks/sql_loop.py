"""Rules as a loop of INSERT statements of DuckDB: what one writes where relations are mutually recursive, which a
recursive query of SQL cannot be.

The loop is semi-naive: a rule reads, at one of its recursive atoms, only the rows that the last round has found, and
`EXCEPT` leaves out what is there already. Statements that read nothing new are not run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

COLUMNS = "abcdefgh"
_TYPES = {"String": "varchar", "u32": "uinteger", "i32": "integer", "usize": "ubigint"}
_ATOM = re.compile(r"([^\s,(]+)\(([^)]*)\)")


@dataclass(frozen=True)
class Rule:
    """head and body are atoms: (relation, variables)."""

    head: tuple[str, list[str]]
    body: list[tuple[str, list[str]]]

    def select(self, tables: Sequence[str]) -> str:
        """The rows of the head, the atoms of the body reading these tables."""
        place: dict[str, str] = {}
        conditions = []
        for number, (_, variables) in enumerate(self.body):
            for column, variable in zip(COLUMNS, variables):
                found = f"t{number}.{column}"
                if variable == "_":
                    continue
                if variable in place:
                    conditions.append(f"{place[variable]} = {found}")
                place.setdefault(variable, found)
        heads = ", ".join(f"{place[v]} as {column}" for column, v in zip(COLUMNS, self.head[1]))
        sources = ", ".join(f'"{table}" t{number}' for number, table in enumerate(tables))
        return f"select {heads} from {sources}{' where ' if conditions else ''}{' and '.join(conditions)}"


def parse(desugared: str) -> tuple[dict[str, list[str]], list[Rule]]:
    """(relation -> types of columns, rules) of a positive program, as `explain("desugar")` prints it."""
    types, rules = {}, []
    for line in desugared.splitlines():
        kind, _, rest = line.partition(" ")
        if kind not in ("relation", "rule"):
            continue
        (name, listed), *body = [(m[1], [x.strip() for x in m[2].split(",")]) for m in _ATOM.finditer(rest)]
        if kind == "relation":
            types[name] = [_TYPES[t.split(":")[-1].strip()] for t in listed]
        else:
            rules.append(Rule((name, listed), body))
    return types, rules


def run(connection: Any, desugared: str, facts: Mapping[str, np.ndarray], output: str) -> Any:
    """The tables of all relations; returns the number of rows of one and the sums of its columns, of texts their
    lengths."""
    import pyarrow

    types, rules = parse(desugared)
    derived = list(dict.fromkeys(rule.head[0] for rule in rules))
    execute = connection.execute
    for name, columns in types.items():
        shape = ", ".join(f"{column} {t}" for column, t in zip(COLUMNS, columns))
        for table in (name, *((f"{name}:new", f"{name}:next") if name in derived else ())):
            execute(f'create table "{table}" ({shape})')
        if name in facts:
            rows = facts[name]
            columns = {COLUMNS[c]: np.ascontiguousarray(rows[:, c]) for c in range(rows.shape[1])}
            connection.register("given", pyarrow.table(columns))
            execute(f'insert into "{name}" select distinct * from given')
    for name in derived:
        parts = [f'select * from "{name}"']
        parts += [
            rule.select([atom[0] for atom in rule.body])
            for rule in rules
            if rule.head[0] == name and not any(atom[0] in derived for atom in rule.body)
        ]
        execute(f'insert into "{name}:new" {" union ".join(parts)}')
        execute(f'delete from "{name}"')
        execute(f'insert into "{name}" select * from "{name}:new"')
    news = {name for name in derived if _count(connection, f"{name}:new")}
    while news:
        for name in derived:
            parts = []
            for rule in rules:
                tables = [atom[0] for atom in rule.body]
                for number, table in enumerate(tables):
                    if rule.head[0] == name and table in news:
                        parts.append(rule.select([*tables[:number], f"{table}:new", *tables[number + 1 :]]))
            if parts:
                execute(f'insert into "{name}:next" {" union ".join(parts)} except select * from "{name}"')
        news = set()
        for name in derived:
            execute(f'delete from "{name}:new"')
            execute(f'insert into "{name}" select * from "{name}:next"')
            execute(f'insert into "{name}:new" select * from "{name}:next"')
            execute(f'delete from "{name}:next"')
            if _count(connection, f"{name}:new"):
                news.add(name)
    sums = [f"sum({f'length({c})' if t == 'varchar' else c})" for c, t in zip(COLUMNS, types[output])]
    return execute(f'select count(*), {", ".join(sums)} from "{output}"').fetchone()


def _count(connection: Any, table: str) -> int:
    return connection.execute(f'select count(*) from "{table}"').fetchone()[0]
