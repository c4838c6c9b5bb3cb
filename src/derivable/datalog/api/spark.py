"""Runs on engines that speak Spark's protocol: relations stay DataFrames there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.core.arguments import integer
from derivable.core.diagnostics import BindingError, DomainError, LimitError, UnsupportedError
from derivable.core.names import FreshNames
from derivable.core.registry import suggestion
from derivable.datalog.api.distributed_run import DistributedRun
from derivable.datalog.api.evaluation import take_tags
from derivable.datalog.api.partitions import RoundPlan, size_of
from derivable.datalog.api.relation_view import RelationView
from derivable.datalog.api.spark_rounds import Rounds
from derivable.datalog.api.spark_task import KEY, KEYS, SOURCE, Task, function_of
from derivable.datalog.distribution.frames import (
    Frame,
    is_frame,
    key_expression,
    quoted,
    read_frame,
    result_type,
    schema_text,
    types_of,
)
from derivable.datalog.distribution.partition import Partition
from derivable.datalog.distribution.scalar_sql import RefusedError
from derivable.datalog.distribution.session import check_session, session_errors, session_of
from derivable.datalog.distribution.tag_sql import TagSql
from derivable.datalog.facts.inputs import Columns, checked_facts, taken
from derivable.datalog.facts.load import load_relation
from derivable.datalog.facts.program_facts import load_program_facts
from derivable.datalog.facts.store import new_store
from derivable.datalog.policy.costs import policy
from derivable.datalog.run.limits import Limits, checked_limits
from derivable.device.cpu.threads import available_cores

if TYPE_CHECKING:
    from derivable.datalog.api.program import Program

# Keys for each partition of an engine, so that those that hash alike are few.
_KEYS_EACH = 8
# The engine's types of tags, by the kind of theirs.
_TAG_TYPES = {"f": "DOUBLE", "i": "BIGINT", "b": "BOOLEAN"}


class SparkDatabase(Mapping):
    """The outputs of a run on an engine by name, each a `SparkRelation`; `provenance` is the one that it runs under.

    Nothing has been computed yet: the engine does that for each DataFrame whenever its rows are read. Rounds alone are
    run here, when their relation is looked up.
    """

    def __init__(self, run: SparkRun):
        self.provenance: str = run.name
        self._run = run
        self._relations: dict[str, SparkRelation] = {}

    def explain(self, stage: str = "distribution") -> str:
        """By which column each stratum is partitioned, and what each partition needs all of, with its bytes."""
        if stage != "distribution":
            raise DomainError(f"a run on an engine explains its distribution, not {stage!r}")
        return self._run.explain()

    def to_spark(self) -> dict[str, Any]:
        """Relation -> its DataFrame, of all relations."""
        return {name: self[name].to_spark() for name in self}

    def __getitem__(self, name: str) -> SparkRelation:
        if name not in self._run.distribution.plans:
            known = self._run.distribution.plans
            hint = suggestion(name, known, f"the outputs are {', '.join(known)}")
            raise BindingError(f"unknown relation `{name}`", hint=hint)
        if name not in self._relations:
            self._relations[name] = SparkRelation(self._run, name)
        return self._relations[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._run.distribution.plans)

    def __len__(self) -> int:
        return len(self._run.distribution.plans)

    def __repr__(self) -> str:
        return f"SparkDatabase({', '.join(self)})"


class SparkRelation(Mapping):
    """An output in an engine: a DataFrame, whose rows are not collected unless they are read here.

    It is a mapping from tuples to tags, as `RelationView` is, whose rows come here with the first question about them;
    `len` is counted in the engine.
    """

    def __init__(self, run: SparkRun, name: str):
        self._run, self.name = run, name
        check_session(run.session)
        self._frame = run.frame_of(name)

    def to_spark(self) -> Any:
        """Its DataFrame, one row a tuple; the tags are its last column, `tag`. It is computed whenever rows of it are
        read: who needs them twice writes them to a file or table first, `frame.write.parquet(path)`."""
        return self._frame

    @cached_property
    def collected(self) -> RelationView:
        """The relation in this process."""
        check_session(self._run.session)
        with session_errors(f"`{self.name}`"):
            return self._run.view(self.name, self._frame.toArrow())

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """Columns of the collected rows, as `RelationView.columns`."""
        return self.collected.columns

    @property
    def tags(self) -> np.ndarray | None:
        """Tags of the collected rows, as `RelationView.tags`."""
        return self.collected.tags

    def to_arrow(self) -> Any:
        """As `RelationView.to_arrow`, of the collected rows."""
        return self.collected.to_arrow()

    def to_pandas(self) -> Any:
        """As `RelationView.to_pandas`, of the collected rows."""
        return self.collected.to_pandas()

    def to_polars(self) -> Any:
        """As `RelationView.to_polars`, of the collected rows."""
        return self.collected.to_polars()

    def __len__(self) -> int:
        if "collected" in vars(self):
            return len(self.collected)
        check_session(self._run.session)
        with session_errors(f"`{self.name}`"):
            return self._frame.count()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.collected)

    def items(self) -> Any:
        return self.collected.items()

    def __contains__(self, key: object) -> bool:
        return key in self.collected

    def __getitem__(self, key: Any) -> Any:
        return self.collected[key]

    def __repr__(self) -> str:
        return f"SparkRelation({self.name}: {self._run.schema(self.name)})"


class SparkRun(DistributedRun):
    """A program on an engine, over facts some of which the engine has."""

    def __init__(
        self,
        program: Program,
        facts: Mapping[str, Any],
        provenance: Any,
        engine: Any,
        *,
        partitions: int | None,
        spill: str | os.PathLike | None,
        k: int | None,
        limits: Limits,
    ):
        self.session = session_of(engine)
        self.partitions: int = partitions or self._default_partitions(engine)
        self.num_keys = _KEYS_EACH * self.partitions
        self.spill = None if spill is None else os.fspath(spill)
        raw = {name: read_frame(name, rows, self.session) for name, rows in facts.items() if is_frame(rows)}
        with session_errors("the facts"):
            types = {name: types_of(frame) for name, frame in raw.items()}
        here = {name: rows for name, rows in facts.items() if name not in raw}
        self._begin(program, raw, types, here, provenance, k, limits, dict.fromkeys(raw))
        self._collected: dict[str, Columns] = {}
        self._schemas: dict[str, dict[str, str]] = {}

    def _default_partitions(self, engine: Any) -> int:
        if isinstance(engine, str) and engine == "sail":
            # More than cores: each has the rows of its result in memory.
            return 4 * available_cores()
        with session_errors("the session"):
            return int(self.session.conf.get("spark.sql.shuffle.partitions", "200"))

    def explain(self) -> str:
        sizes: dict[str, int | None] = {name: size_of(rows) for name, rows in self.local.items()}
        for output in self.distribution.plans:
            # What is refused is so in the text too.
            with contextlib.suppress(LimitError, UnsupportedError):
                self._planned(output)
        sizes |= {name: size_of(self._collected[name]) if name in self._collected else None for name in self.frames}
        return self.distribution.text(sizes)

    # Facts

    def whole(self, name: str, frame: Frame) -> Columns:
        """Facts that all partitions need, which are collected here once."""
        if name not in self._collected:
            most = policy().small_bytes // (8 * max(1, len(frame.names)))
            with session_errors(f"facts for `{name}`"):
                table = frame.frame.select(*map(quoted, frame.names)).limit(most + 1).toArrow()
            if table.num_rows > most:
                raise LimitError(
                    f"every partition needs all facts of `{name}`, which are more than {most:,} rows",
                    hint='`explain("distribution")` says why; give the relations a column that all atoms share',
                )
            rows = taken({name: table.rename_columns(frame.labels(self.plan.rules.relations[name]))})[name]
            self._collected[name] = self.checked(name, rows, new_store(self.plan.rules))
        return self._collected[name]

    # Results

    @property
    def adds_up(self) -> bool:
        return self.record is boolean or (super().adds_up and self._tag_sql is not None)

    @cached_property
    def _tag_sql(self) -> TagSql | None:
        """How the engine adds up tags; None if it does not."""
        with contextlib.suppress(RefusedError):
            if isinstance(self.record, Semiring) and self.record is not boolean:
                return TagSql.of(self.record)
        return None

    def _planned(self, output: str) -> Partition | RoundPlan:
        planned = self.planned_partition(output, "without the engine the program runs on one machine")
        if isinstance(planned, str):
            rounds = self.distribution.rounds[output]
            if isinstance(rounds, RoundPlan):
                return rounds
            raise UnsupportedError(
                f"`{output}` is computed neither in rounds, as {rounds}, nor in partitions: {planned}",
                hint='`explain("distribution")` has all strata; without the engine the program runs on one machine',
            )
        try:
            self.whole_facts(planned)
        except LimitError as error:
            # Rounds send nothing to all partitions.
            rounds = RoundPlan.of(self.plan, output, self.record)
            if isinstance(rounds, str):
                raise LimitError(
                    f"{error.message}; nor is it computed in rounds, as {rounds}", hint=error.hint
                ) from None
            self.distribution.rounds[output], self.distribution.plans[output] = rounds, error.message
            return rounds
        return planned

    def schema(self, output: str) -> dict[str, str]:
        """Column -> its type in the engine."""
        if output not in self._schemas:
            planned = self._planned(output)
            relation, fresh = self.plan.rules.relations[output], FreshNames()
            names = self.column_names(output, fresh)
            columns = {name: result_type(relation, c) for c, name in enumerate(names)}
            if isinstance(planned, RoundPlan):
                tag = None if planned.tags is None else planned.tags.shown
            else:
                kind = self.tag_type(planned)
                tag = None if kind is None else _TAG_TYPES[kind.kind]
            if tag is not None:
                columns[fresh("tag")] = tag
            self._schemas[output] = columns or {fresh("holds"): "BOOLEAN"}
        return self._schemas[output]

    def frame_of(self, output: str) -> Any:
        """The DataFrame of an output."""
        partition, columns = self._planned(output), self.schema(output)
        if isinstance(partition, RoundPlan):
            return self._in_rounds(partition, output, columns)
        sources, rows = self._rows(partition, self.sources)
        task = Task(self.partition_run(partition, self.whole_facts(partition)), sources, tuple(columns))
        with session_errors(f"`{output}`"):
            result = rows.mapInArrow(function_of(task), schema_text(columns))
            return self._merged(result, columns) if partition.is_scattered else result

    def _in_rounds(self, planned: RoundPlan, output: str, columns: Mapping[str, str]) -> Any:
        """The DataFrame of an output that rounds compute, which is done here."""
        if self.limits != Limits():
            raise UnsupportedError("rounds of an engine have no limits", hint="leave out the limit, or the engine")
        store = new_store(planned.rules)
        load_program_facts(planned.rules, store)
        for name, rows in self.local.items():
            load_relation(planned.rules.relations[name], rows, store)
        if store.random.groups and self.record is not boolean:
            raise UnsupportedError("choices among facts are not computed in rounds", hint="leave out the engine")
        assert isinstance(self.record, Semiring)
        take_tags(store, planned.rules, self.record, self.name)
        rounds = Rounds(self.session, planned, self.record, store, self.frames, self.spill)
        with session_errors(f"`{output}`"):
            result = rounds.run(output)
        types = planned.rules.relations[output].types
        sources = [*(f"c{c}" for c in range(len(types))), *(["tag"] if self.record is not boolean else [])]
        named = zip(sources or ["CAST(c0 AS BOOLEAN)"], columns)
        return result.selectExpr(*(f"{source} AS {quoted(name)}" for source, name in named))

    def _rows(self, partition: Partition, names: Mapping[str, str]) -> tuple[dict, Any]:
        """What partitions get: the sources of a `Task`, and a DataFrame of keys and of rows of these."""
        with session_errors("the session"):
            count, parts = (1, 1) if partition.reason else (self.num_keys, self.partitions)
            keys = self.session.range(0, count, 1, parts).selectExpr(f"id AS {KEY}")
            if not partition.split:
                return {}, keys
            sources: dict[str, tuple[tuple[str, str], ...]] = {}
            nulls: dict[str, str] = {}
            for number, (relation, version) in enumerate(partition.split.items()):
                name = names[version.relation]
                frame = self.frames[name]
                types = types_of(frame.frame)
                columns = [f"source_{number}_{c}" for c in range(len(frame.names))]
                nulls |= {c: f"CAST(NULL AS {types[title]}) AS {c}" for c, title in zip(columns, frame.names)}
                sources[relation] = tuple(zip(columns, frame.labels(self.plan.rules.relations[name])))
            rows = keys.selectExpr(KEY, f"{KEYS} AS {SOURCE}", *nulls.values())
            for number, (relation, version) in enumerate(partition.split.items()):
                frame = self.frames[names[version.relation]]
                assert version.column is not None
                t = partition.rules.relations[relation].types[version.column]
                key = key_expression(frame.columns[version.column], t, self.num_keys)
                columns = [column for column, _ in sources[relation]]
                filled = nulls | {c: f"{quoted(title)} AS {c}" for c, title in zip(columns, frame.names)}
                rows = rows.unionAll(
                    frame.frame.selectExpr(f"{key} AS {KEY}", f"{number} AS {SOURCE}", *filled.values())
                )
            return sources, rows.repartition(self.partitions, KEY)

    def _merged(self, rows: Any, columns: Mapping[str, str]) -> Any:
        """Rows that follow in several partitions once each, with their tags added up."""
        if self.record is boolean:
            return rows.distinct()
        assert self._tag_sql is not None
        return self._tag_sql.merged(rows, columns)


def run_on_engine(
    program: Program,
    facts: Mapping[str, Any] | None,
    provenance: Any,
    engine: Any,
    *,
    partitions: int | None = None,
    spill: str | os.PathLike | None = None,
    k: int | None = None,
    iteration_limit: int | None = None,
    round_limit: int | None = None,
    **others: Any,
) -> SparkDatabase:
    """A run on an engine, as `Program.run` has it. `others` are options that it takes only on one machine."""
    wrong = [name for name, value in others.items() if value]
    if wrong:
        raise UnsupportedError(f"a run on an engine takes no {wrong[0]}", hint=f"leave out {wrong[0]}, or the engine")
    if partitions is not None:
        partitions = integer(partitions, "partitions", 1, 2**31 - 1)
    limits = checked_limits(iteration_limit, round_limit)
    inputs = checked_facts(facts)
    return SparkDatabase(
        SparkRun(program, inputs, provenance, engine, partitions=partitions, spill=spill, k=k, limits=limits)
    )
