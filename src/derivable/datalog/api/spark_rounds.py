"""The round plan: recursions as joins of an engine, a round at a time.

What a round finds is written as Parquet and read again, so that no round computes an earlier one again; every ten
rounds the rows so far are written as one. A worker that is lost costs its part of one round.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
import weakref
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import TypeMismatchError, UnsupportedError
from derivable.core.lazy import later
from derivable.datalog.api.partitions import RoundPlan
from derivable.datalog.api.spark_task import engine_column
from derivable.datalog.distribution.frames import Frame, quoted, result_type, schema_text, types_of
from derivable.datalog.distribution.round_sql import Query, needed_strata
from derivable.datalog.distribution.scalar_sql import MOST_INTEGER
from derivable.datalog.distribution.session import is_local, session_errors
from derivable.datalog.distribution.tag_sql import Recursion
from derivable.datalog.exact.unroll import infinitely_many
from derivable.datalog.facts.store import FactStore
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules import nodes as r
from derivable.datalog.tags.provenance import tags_of
from derivable.datalog.values.values import show_column

arrow: Any = later("pyarrow")
parquet: Any = later("pyarrow.parquet")
# Rounds whose rows are read from separate files.
_FOLDED = 10
_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


class Rounds:
    """A run of the strata that an output needs.

    record  the semiring of tags
    facts   of this process; `frames` those of the engine
    folder  where the engine writes; None for a temporary folder of this machine
    """

    def __init__(
        self,
        session: Any,
        plan: RoundPlan,
        record: Semiring,
        facts: FactStore,
        frames: Mapping[str, Frame],
        folder: str | None,
    ):
        self.session, self.ram, self.record = session, plan.ram, record
        self.facts, self.frames = facts, frames
        self.tags = plan.tags
        # Whether facts are taken only between zero and one.
        self.is_recursive = False
        self.name = f"derivable_{uuid.uuid4().hex[:12]}"
        self.is_temporary = folder is None
        self.folder = self._made(folder)
        self.numbers = {name: number for number, name in enumerate(self.ram.relations)}
        self.query = Query(self.ram, self.tags, self._view)
        self.views: set[str] = set()

    def _made(self, folder: str | None) -> str:
        if folder is not None:
            return f"{str(folder).rstrip('/')}/{self.name}"
        if not is_local(self.session):
            raise UnsupportedError(
                "a recursion without a pivot goes in rounds, whose rows the engine writes to files",
                hint='name a folder that all its machines have: spill="s3://bucket/folder"',
            )
        made = tempfile.mkdtemp(prefix="derivable-")
        # DataFrames of the result read from there, and have the session.
        weakref.finalize(self.session, shutil.rmtree, made, ignore_errors=True)
        return made

    def run(self, output: str) -> Any:
        """The rows of an output, with columns c0, c1, ... and tag."""
        strata = needed_strata(self.ram, output)
        self.is_recursive = any(stratum.is_recursive for stratum in strata)
        try:
            for number, stratum in enumerate(strata):
                if stratum.is_recursive and self._passes_on("derivations"):
                    self._sums(number, stratum)
                elif stratum.is_recursive:
                    self._recursive(number, stratum)
                else:
                    for name in stratum.relations:
                        self._show(self._view(name, "all"), self._once(name, stratum.full))
            return self._result(output)
        except BaseException:
            if is_local(self.session):
                shutil.rmtree(self.folder, ignore_errors=True)
            raise
        finally:
            if self.is_temporary:
                for path in Path(self.folder).glob("stratum_*"):
                    shutil.rmtree(path, ignore_errors=True)
            for view in self.views:
                self.session.catalog.dropTempView(view)

    def _result(self, output: str) -> Any:
        rows = f"SELECT * FROM {self._view(output, 'all')}"
        if self.tags is None:
            return self._written("result", output, rows)
        result = self._written("result", output, f"{rows} WHERE tag IS NULL OR tag <> {self.tags.zero}")
        if self._passes_on("derivations"):
            self._check_sums(output, result)
        columns = self.query.columns(output)
        return result.selectExpr(*columns, f"CAST(tag AS {self.tags.shown}) AS tag")

    def _check_sums(self, output: str, result: Any) -> None:
        """Raises UnsupportedError for sums of infinitely many derivations, and for integers that the engine has not."""
        assert self.tags is not None
        beyond = f" OR tag > {MOST_INTEGER}" if self.tags.is_integer else ""
        wrong = result.filter(f"tag IS NULL{beyond}").limit(1).collect()
        if wrong and wrong[0]["tag"] is None:
            raise infinitely_many(self.record)
        if wrong:
            raise UnsupportedError(
                f"`{output}` has a tag beyond {MOST_INTEGER}, and the integers of the engine have 64 bits with a sign",
                hint="leave out the engine",
            )

    def _passes_on(self, recursion: Recursion) -> bool:
        """Whether recursions pass on tags in this way."""
        return self.tags is not None and self.tags.recursion == recursion

    def _view(self, relation: str, part: m.Part) -> str:
        # Where plus chooses, and without tags, rows that are looked at twice change nothing.
        if part == "stable" and (self.tags is None or self._passes_on("better")):
            part = "all"
        return f"{self.name}_{self.numbers[relation]}_{part}"

    def _show(self, view: str, rows: Any) -> None:
        frame = self.session.sql(rows) if isinstance(rows, str) else rows
        frame.createOrReplaceTempView(view)
        self.views.add(view)

    def _written(self, path: str, name: str, query: str) -> Any:
        """The rows of a query for a relation, written to a file and read from there."""
        self.session.sql(query).write.mode("overwrite").parquet(f"{self.folder}/{path}")
        return self._read(name, [path])

    def _read(self, name: str, files: Sequence[str]) -> Any:
        relation = self.ram.relations[name]
        kinds = {f"c{c}": result_type(relation, c) for c in range(len(relation.types))} or {"c0": "INT"}
        if self.tags is not None:
            kinds["tag"] = self.tags.kind
            if self._passes_on("new"):
                kinds["is_new"] = "BOOLEAN"
        # Of no rows a file may be without columns.
        return self.session.read.schema(schema_text(kinds)).parquet(*(f"{self.folder}/{path}" for path in files))

    # Facts

    def _once(self, name: str, instructions: Sequence[m.Instruction]) -> str:
        """The rows of a relation that its facts and some instructions give, as a query."""
        queries = [self.query.of(one) for one in instructions if one.relation == name]
        facts = self._facts(name)
        if facts is not None:
            view = f"{self._view(name, 'all')}_facts"
            self._show(view, facts)
            queries.append(f"SELECT * FROM {view}")
        if not queries:
            relation = self.ram.relations[name]
            nulls = [f"CAST(NULL AS {result_type(relation, c)}) AS c{c}" for c in range(len(relation.types))]
            tag = [] if self.tags is None else [f"{self.tags.one} AS tag"]
            queries.append(f"SELECT {', '.join([*(nulls or ['1 AS c0']), *tag])} WHERE 1 = 0")
        return self.query.summed(name, queries)

    def _facts(self, name: str) -> Any:
        """The facts of a relation as a DataFrame; None without any."""
        relation = self.ram.relations[name]
        rows = self._of_frame(relation, self.frames[name]) if name in self.frames else None
        if name in self.facts.relations:
            words, variables = self.facts.relations[name].joined(len(relation.types))
            # An engine infers nothing from no rows.
            if len(variables):
                here = self._of_process(relation, words, variables)
                rows = here if rows is None else rows.unionAll(here)
        return rows

    def _of_frame(self, relation: r.Relation, frame: Frame) -> Any:
        bad: list[str] = []
        for column, t in zip(frame.columns, relation.types):
            bad.append(f"{quoted(column)} IS NULL")
            if t.is_integer:
                low, high = t.limits
                bad += [f"{quoted(column)} < {max(low, -(1 << 63))}", f"{quoted(column)} > {min(high, (1 << 63) - 1)}"]
            elif t.family == "float":
                bad.append(f"isnan(CAST({quoted(column)} AS DOUBLE))")
            elif t.family == "char":
                bad.append(f"char_length({quoted(column)}) <> 1")
        tag = None if frame.tag is None or self.tags is None else f"CAST({quoted(frame.tag)} AS DOUBLE)"
        if self.tags is not None and tag is not None:
            bad += self.tags.wrong(tag, self.is_recursive)
        with session_errors(f"facts for `{relation.name}`"):
            wrong = frame.frame.filter(" OR ".join(bad)).limit(1).collect() if bad else []
            if wrong:
                raise TypeMismatchError(
                    f"facts for `{relation.name}`: the row {tuple(wrong[0])} does not fit"
                    f" `{relation.name}({', '.join(map(str, relation.types))})`{self._domain}",
                    hint="a relation has no missing values, and integers of its types",
                )
            kinds = types_of(frame.frame)
            columns = [
                f"{self._in_utc(quoted(name))} AS c{c}"
                if kinds[name] == "timestamp"
                else f"CAST({quoted(name)} AS {result_type(relation, c)}) AS c{c}"
                for c, name in enumerate(frame.columns)
            ]
            if self.tags is not None:
                columns.append(f"{self.tags.one if tag is None else self.tags.fact.format(tag)} AS tag")
            return self._without_zero(frame.frame.selectExpr(*columns))

    @cached_property
    def _casts_to_utc(self) -> bool:
        """Whether a cast of a moment gives its time in UTC: Spark's gives that of the session's time zone."""
        [(is_so,)] = self.session.sql(f"SELECT CAST(timestamp_micros(0) AS TIMESTAMP_NTZ) = {_EPOCH}").collect()
        return bool(is_so)

    def _in_utc(self, moment: str) -> str:
        """SQL of the time in UTC of a `TIMESTAMP`."""
        if self._casts_to_utc:
            return f"CAST({moment} AS TIMESTAMP_NTZ)"
        return f"timestampadd(MICROSECOND, unix_micros({moment}), {_EPOCH})"

    def _without_zero(self, facts: Any) -> Any:
        """Those of facts that are rows, by their tags; a derivation of weight zero is one among others."""
        if self.tags is None or self._passes_on("derivations"):
            return facts
        return facts.filter(f"tag <> {self.tags.zero}")

    @property
    def _domain(self) -> str:
        if self.tags is None or self.tags.domain is None or self.tags.between is None:
            return ""
        low, high = self.tags.between if self.is_recursive else self.tags.domain
        return f" with a tag from {low:g} to {high:g}, as rounds take it"

    def _of_process(self, relation: r.Relation, words: Sequence[np.ndarray], variables: np.ndarray) -> Any:
        columns: dict[str, Any] = {}
        for c, (of_words, t) in enumerate(zip(words, relation.types)):
            shown = show_column(np.asarray(of_words, np.int64), t, self.facts.symbols)
            column = engine_column(shown, t, relation.name)
            # Times as texts: the engine would take them as those of the time zone of its session.
            columns[f"c{c}"] = column.cast(arrow.string()) if t.family == "datetime" else column
        if not columns:
            columns["c0"] = arrow.array(np.ones(len(variables), np.int32))
        kinds = [f"CAST(c{c} AS {result_type(relation, c)}) AS c{c}" for c in range(len(relation.types))] or ["c0"]
        if self.tags is not None:
            columns["tag"] = self._tags(relation, variables)
            kinds.append("tag")
        return self._without_zero(self.session.createDataFrame(arrow.table(columns)).selectExpr(*kinds))

    def _tags(self, relation: r.Relation, variables: np.ndarray) -> Any:
        """[row] the tags of facts of this process, of which some are the random facts of these numbers."""
        assert self.tags is not None
        algebra = tags_of(self.record, self.facts.random)
        tags, is_random = algebra.one(len(variables)), variables >= 0
        tags[is_random] = algebra.fact_tags(variables[is_random])
        if tags.dtype == object:
            # Larger ones are beyond the integers of the engine, as every number of them is.
            tags = [Decimal(min(tag, MOST_INTEGER + 1)) for tag in tags]
            return arrow.array(tags, arrow.decimal128(20, 0))
        bounds = self.tags.between if self.is_recursive else None
        if bounds is not None and not ((tags >= bounds[0]) & (tags <= bounds[1])).all():
            raise TypeMismatchError(f"facts for `{relation.name}`: a fact is no row{self._domain}")
        return arrow.array(tags)

    # Recursion

    def _recursive(self, number: int, stratum: m.Stratum) -> None:
        self._loop(number, stratum, self._begin(number, stratum))

    def _begin(self, number: int, stratum: m.Stratum) -> dict[str, str]:
        """Relation -> the file with what it has before the first round."""
        files = {name: f"stratum_{number}/{self.numbers[name]}/0" for name in stratum.relations}
        for name, path in files.items():
            self._written(path, name, self._once(name, stratum.once))
        return files

    def _queries(self, stratum: m.Stratum) -> dict[str, list[str]]:
        """Relation -> what each round derives of it."""
        return {
            name: [self.query.of(store) for store in stratum.loop if store.relation == name]
            for name in stratum.relations
        }

    def _loop(self, number: int, stratum: m.Stratum, first: Mapping[str, str]) -> dict[str, list[str]]:
        """Rounds until one finds nothing; relation -> the files with its rows."""
        files = {name: [path] for name, path in first.items()}
        for name in stratum.relations:
            self._show_parts(name, files[name], self._read(name, files[name]))
        queries = self._queries(stratum)
        is_over, here = False, 0
        while not is_over:
            here += 1
            news: dict[str, Any] = {}
            for name, of in queries.items():
                if of:
                    path = f"stratum_{number}/{self.numbers[name]}/{here}"
                    news[name] = self._written(path, name, self._news(name, of))
                    files[name].append(path)
            is_over = True
            for name in stratum.relations:
                recent = news.get(name)
                if recent is None:
                    recent = self._read(name, files[name]).limit(0)
                elif self._passes_on("new"):
                    recent = recent.filter("is_new")
                is_over = is_over and (name not in news or self._is_empty(files[name][-1], recent))
                if len(files[name]) > _FOLDED:
                    files[name] = [self._folded(name, number, here, files[name])]
                self._show_parts(name, files[name], recent)
        return files

    def _is_empty(self, path: str, rows: Any) -> bool:
        """Whether there are no rows, which are those of a file, or some of them."""
        if self._sees_files:
            written = Path(self.folder, path).glob("*.parquet")
            if not any(parquet.read_metadata(part).num_rows for part in written):
                return True
            if not self._passes_on("new"):
                return False
        return rows.isEmpty()

    @property
    def _sees_files(self) -> bool:
        return is_local(self.session) and "://" not in self.folder

    def _folded(self, name: str, number: int, here: int, files: Sequence[str]) -> str:
        """A file with the rows of several ones."""
        view = f"{self._view(name, 'all')}_files"
        self._show(view, self._read(name, files))
        path = f"stratum_{number}/{self.numbers[name]}/to_{here}"
        self._written(path, name, self._summed_files(name, view))
        return path

    def _summed_files(self, name: str, view: str) -> str:
        columns = ", ".join(self.query.columns(name))
        if self.tags is None:
            return f"SELECT {columns} FROM {view}"
        return self.query.summed(name, [f"SELECT {columns}, tag FROM {view}"])

    def _show_parts(self, name: str, files: Sequence[str], recent: Any) -> None:
        """Have the views of a relation show what is in files, and what is recent of it."""
        columns = self.query.columns(name)
        rows = self._read(name, files)
        if self.tags is not None:
            view = f"{self._view(name, 'all')}_files"
            self._show(view, rows)
            rows = self._summed_files(name, view)
        self._show(self._view(name, "all"), rows)
        tag = [] if self.tags is None else ["tag"]
        self._show(self._view(name, "recent"), recent.selectExpr(*columns, *tag))
        if self._view(name, "stable") != self._view(name, "all"):
            on = " AND ".join(f"a.{c} = b.{c}" for c in columns)
            query = f"SELECT a.* FROM {self._view(name, 'all')} a LEFT ANTI JOIN {self._view(name, 'recent')} b ON {on}"
            self._show(self._view(name, "stable"), query)

    def _news(self, name: str, queries: Sequence[str]) -> str:
        """What a round finds that is new, or better than it was."""
        columns = self.query.columns(name)
        on = " AND ".join(f"n.{c} = o.{c}" for c in columns)
        derived, old = f"({self.query.summed(name, queries)}) n", f"{self._view(name, 'all')} o"
        if self.tags is None:
            return f"SELECT n.* FROM {derived} LEFT ANTI JOIN {old} ON {on}"
        joined = f"FROM {derived} LEFT JOIN {old} ON {on}"
        if self._passes_on("new"):
            return f"SELECT n.*, o.tag IS NULL AS is_new {joined}"
        return f"SELECT n.* {joined} WHERE o.tag IS NULL OR {self.tags.better.format('n.tag', 'o.tag')}"

    # Sums of derivations

    def _sums(self, number: int, stratum: m.Stratum) -> None:
        """A recursion whose tags add up each derivation once: first which rows there are, then their tags."""
        first, tags = self._begin(number, stratum), self.tags
        assert tags is not None
        self.tags, self.query = None, Query(self.ram, None, self._view)
        try:
            there = self._loop(number, stratum, first)
            for name in stratum.relations:
                self._show(f"{self._view(name, 'all')}_there", self._read(name, there[name]))
        finally:
            self.tags, self.query = tags, Query(self.ram, tags, self._view)
        files: dict[str, list[str]] = {}
        for name in stratum.relations:
            columns, view = ", ".join(self.query.columns(name)), self._view(name, "all")
            self._show(f"{view}_first", self._read(name, [first[name]]))
            parts = [f"SELECT {columns}, {tags.zero} AS tag FROM {view}_there", f"SELECT * FROM {view}_first"]
            path = f"stratum_{number}/{self.numbers[name]}/sums_0"
            self._written(path, name, self.query.summed(name, parts))
            files[name] = [path]
        self._add_up(number, stratum, files)

    def _add_up(self, number: int, stratum: m.Stratum, files: dict[str, list[str]]) -> None:
        """Have views show tags, of which files have the first part.

        Each round reads what the round before has added to tags. Its rows are those with a derivation from one of
        these, so they become fewer until there are none. Where they do not, they follow from a cycle and have
        infinitely many derivations: their tags are NULL, as are those of whatever follows from them.
        """
        queries, names = self._queries(stratum), stratum.relations
        scans = [m.scan_of(node) for store in stratum.loop for node in store.query.operators]
        parts: dict[str, set[m.Part]] = {name: set() for name in names}
        for scan in scans:
            if scan is not None and scan.relation in parts:
                parts[scan.relation].add(scan.part)
        recent = {name: of[0] for name, of in files.items()}
        left, here = self._count(recent), 0
        while left:
            for name in names:
                self._show_sums(name, files[name], recent.get(name), parts[name])
            here, before, recent = here + 1, left, {}
            for name, of in queries.items():
                if of:
                    recent[name] = f"stratum_{number}/{self.numbers[name]}/sums_{here}"
                    self._written(recent[name], name, self.query.summed(name, of))
            left = self._count(recent)
            for name, path in recent.items():
                if left == before:
                    self._written(f"{path}_endless", name, self._without_sum(name))
                    path = f"{path}_endless"
                if len(files[name]) >= _FOLDED:
                    files[name] = [self._folded(name, number, here, files[name])]
                files[name].append(path)
            if left == before:
                break
        for name in names:
            self._show_sums(name, files[name], None, ["all"])

    def _without_sum(self, name: str) -> str:
        """The rows that the last round read as recent, with tags that are NULL."""
        assert self.tags is not None
        columns = ", ".join(self.query.columns(name))
        return f"SELECT {columns}, CAST(NULL AS {self.tags.kind}) AS tag FROM {self._view(name, 'recent')}"

    def _count(self, files: Mapping[str, str]) -> int:
        """How many rows there are in files of relations."""
        if self._sees_files:
            parts = (part for path in files.values() for part in Path(self.folder, path).glob("*.parquet"))
            return sum(parquet.read_metadata(part).num_rows for part in parts)
        return sum(self._read(name, [path]).count() for name, path in files.items())

    def _show_sums(self, name: str, files: Sequence[str], recent: str | None, parts: Collection[m.Part]) -> None:
        """Have views of a relation show the sums of tags in files, the last of which has what is recent."""
        for part in parts:
            view = self._view(name, part)
            if part == "recent":
                rows = self._read(name, [recent or files[-1]])
                self._show(view, rows if recent else rows.limit(0))
                continue
            chosen = [file for file in files if part == "all" or file != recent]
            rows = self._read(name, chosen) if chosen else self._read(name, files).limit(0)
            self._show(f"{view}_files", rows)
            self._show(view, self._summed_files(name, f"{view}_files"))
