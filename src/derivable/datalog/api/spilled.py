"""Runs on one machine whose facts or results are more than its memory: partition after partition, to files.

Each run has a folder below that of the user, named by what it is computed from:

    derivable-1f0c.../manifest.json       the program and its inputs, for people
                      facts/edge@0/       an input by the keys of a column, while the run goes on
                      path.unfinished/    a file of Parquet for each partition that is done
                      path/               the same, when all are done

A file is there when it is whole, so that a run that was killed goes on with the keys that no file has. Keys are taken
some at a time, as many as fit the limit of memory by what the partitions before have taken, and fewer if they pass it.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.diagnostics import (
    BindingError,
    CompileTimeout,
    DerivableError,
    DomainError,
    OutOfMemory,
    UnsupportedError,
)
from derivable.core.files import atomic_write, checked_path, locked
from derivable.core.lazy import later
from derivable.core.names import FreshNames
from derivable.core.progress import Deadline, progress
from derivable.core.registry import suggestion
from derivable.core.version import __version__
from derivable.datalog.api.distributed_run import DistributedRun
from derivable.datalog.api.partitions import PartitionRun, partition_errors, size_of
from derivable.datalog.api.relation_view import RelationView, arrow_column
from derivable.datalog.api.spilled_relation import ROWS, SpilledRelation, file_of, files_of, mixed
from derivable.datalog.distribution.frames import Frame
from derivable.datalog.distribution.parquet import (
    ParquetFiles,
    is_parquet,
    keys_of_column,
    read_by_keys,
    write_by_keys,
)
from derivable.datalog.distribution.partition import Partition
from derivable.datalog.distribution.pivot import Version, can_be_pivot
from derivable.datalog.facts.inputs import Columns, checked_facts, taken
from derivable.datalog.foreign.standard import FUNCTIONS, PREDICATES, is_standard
from derivable.datalog.policy.costs import policy
from derivable.datalog.rules.text import rules_text
from derivable.datalog.run.limits import Limits, Watch, checked_limits, size_in_bytes
from derivable.device.cpu.available import shown_bytes
from derivable.device.cpu.memory import empty_cache

if TYPE_CHECKING:
    from derivable.datalog.api.program import Program

arrow: Any = later("pyarrow")
parquet: Any = later("pyarrow.parquet")
# Keys of values; each partition has a range of them.
NUM_KEYS = 1 << 20
# Files that an input is written to by keys at most.
_MOST_PARTS = 256
# How many partitions of the size of the first one there would be, more where the facts are large; how much larger one
# may be than that before it.
_FIRST, _GROWTH = 256, 4
# Parts of the limit: what a partition is meant to take, and what its run may take, as its rows are copied once more.
_MEANT, _MOST = 0.5, 0.75
# Versions of the files.
_FORM = 1
# How `atomic_write` says it.
_CANNOT_WRITE = "cannot write the file: "


class SpilledDatabase(Mapping):
    """The outputs by name, each a `SpilledRelation` on disk; `provenance` is the one that the run was under, and
    `folder` has the files."""

    def __init__(self, run: SpilledRun, relations: Mapping[str, SpilledRelation]):
        self.provenance: str = run.name
        self.folder = run.folder
        self._run, self._relations = run, relations

    def explain(self, stage: str = "distribution") -> str:
        """By which column each stratum is partitioned, and what each partition needs all of, with its bytes."""
        if stage != "distribution":
            raise DomainError(f"a run in partitions explains its distribution, not {stage!r}")
        return self._run.explain()

    def __getitem__(self, name: str) -> SpilledRelation:
        if name not in self._relations:
            hint = suggestion(name, self._relations, f"the outputs are {', '.join(self._relations)}")
            raise BindingError(f"unknown relation `{name}`", hint=hint)
        return self._relations[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._relations)

    def __len__(self) -> int:
        return len(self._relations)

    def __repr__(self) -> str:
        return f"SpilledDatabase({', '.join(self)})"


class SpilledRun(DistributedRun):
    """A program that runs partition after partition, over facts some of which are in files of Parquet."""

    num_keys = NUM_KEYS

    def __init__(
        self,
        program: Program,
        facts: Mapping[str, Any],
        provenance: Any,
        spill: str | os.PathLike,
        memory_limit: int | str | None,
        time_limit: float | None,
        shows: bool | None,
        k: int | None,
        limits: Limits,
    ):
        memory = policy().memory
        self.base: int = memory.resident_bytes()
        self.limit = (memory.available_bytes() or 1 << 32) // 2 if memory_limit is None else size_in_bytes(memory_limit)
        self.deadline = Deadline(time_limit, "the run", "raise time_limit; partitions that are done stay")
        self.shows = shows
        self.files = {name: ParquetFiles.of(name, rows) for name, rows in facts.items() if is_parquet(rows)}
        here = {name: rows for name, rows in facts.items() if name not in self.files}
        here = {name: Path(rows) if isinstance(rows, str) else rows for name, rows in here.items()}
        types = {name: files.types for name, files in self.files.items()}
        sizes = {name: files.num_bytes for name, files in self.files.items()}
        self._begin(program, self.files, types, here, provenance, k, limits, sizes)
        self._whole: dict[str, Any] = {}
        self.key = self._key()
        self.folder = checked_path(spill) / f"derivable-{self.key}"

    def _key(self) -> str:
        """What the results are computed from, as a text that differs where these may differ."""
        text = rules_text(self.plan.rules)
        users = [name for name in (*FUNCTIONS.known(), *PREDICATES.known()) if not is_standard(name)]
        has_code = any(re.search(rf"\b{re.escape(name)}\b", text) for name in users)
        if has_code or not isinstance(self.provenance, str):
            # Nobody sees whether the code of Python functions has changed.
            return uuid.uuid4().hex[:16]
        digest = hashlib.sha256(json.dumps(self._manifest(), sort_keys=True).encode())
        for name, rows in sorted(self.local.items()):
            digest.update(
                name.encode() + pickle.dumps(replace(rows, location=None) if isinstance(rows, Columns) else rows)
            )
        return digest.hexdigest()[:16]

    def _manifest(self) -> dict[str, Any]:
        rules = self.plan.rules
        return {
            "derivable": __version__,
            "form": _FORM,
            "program": rules_text(rules),
            "facts of the program": repr(rules.facts),
            "columns": {name: list(self.plan.titles.get(name) or ()) for name in rules.outputs},
            "provenance": [self.name, self.k, self.limits.iteration_limit, self.compatible],
            "files": {name: files.state for name, files in self.files.items()},
        }

    def explain(self) -> str:
        sizes: dict[str, int | None] = {name: size_of(rows) for name, rows in self.local.items()}
        return self.distribution.text(sizes | {name: files.num_bytes for name, files in self.files.items()})

    def whole(self, name: str, frame: Frame) -> Any:
        if name not in self._whole:
            files = self.files[name]
            if files.num_bytes > self.limit:
                raise OutOfMemory(
                    f"every partition needs all facts of `{name}`, {shown_bytes(files.num_bytes)}, and memory_limit is "
                    f"{shown_bytes(self.limit)}",
                    hint='raise memory_limit; `explain("distribution")` says why they are needed',
                )
            relation = self.plan.rules.relations[name]
            table = files.table(frame.names).rename_columns(frame.labels(relation))
            self._whole[name] = taken({name: table})[name]
        return self._whole[name]

    # Plans

    def planned(self, output: str) -> Partition:
        """The partition's program of an output. Raises UnsupportedError if it has none."""
        hint = "without the folder of the run it is computed in memory"
        planned = self.planned_partition(output, hint)
        if isinstance(planned, str):
            hint = f'`explain("distribution")` has all strata; {hint}'
            raise UnsupportedError(f"`{output}` is not computed in partitions: {planned}", hint=hint)
        return planned

    def schema(self, output: str) -> Any:
        """The columns of an output's files."""
        relation, fresh = self.plan.rules.relations[output], FreshNames()
        fields = []
        for c, (name, t) in enumerate(zip(self.column_names(output, fresh), relation.types)):
            if t.is_wide or t.family in ("entity", "tensor", "duration"):
                raise UnsupportedError(
                    f"column {c} of `{output}` is {t}, which is not written to files of a run",
                    hint="cast it in the rule, or leave out the folder of the run",
                )
            texts = t.family in ("text", "char")
            is_time = t.family == "datetime"
            kind = arrow.string() if texts else arrow.timestamp("us") if is_time else arrow.from_numpy_dtype(t.dtype)
            fields.append((name, kind))
        tags = self.tag_type(self.planned(output))
        if tags is not None:
            fields.append((fresh("tag"), arrow.from_numpy_dtype(tags)))
        return arrow.schema(fields or [(fresh("holds"), arrow.bool_())])

    def _pivots(self, output: str) -> tuple[int, ...]:
        """The columns by whose keys an output's rows are in files."""
        planned = self.planned(output)
        if planned.reason:
            return ()
        if planned.target.column is not None:
            return (planned.target.column,)
        types = self.plan.rules.relations[output].types
        return tuple(c for c, t in enumerate(types) if can_be_pivot(t))

    # Runs

    def run(self) -> SpilledDatabase:
        """Compute all outputs, but for what files of an earlier run have."""
        schemas = {output: self.schema(output) for output in self.distribution.plans}
        with _on_disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder / "lock"):
                with atomic_write(self.folder / "manifest.json") as file:
                    json.dump(self._manifest(), file, indent=1)
                relations = {output: self._output(output, schema) for output, schema in schemas.items()}
                shutil.rmtree(self.folder / "facts", ignore_errors=True)
        return SpilledDatabase(self, relations)

    def _output(self, output: str, schema: Any) -> SpilledRelation:
        done = self.folder / _as_file_name(output)
        relation = self._relation(output, schema, done)
        if not done.is_dir():
            planned = self.planned(output)
            run = self.partition_run(planned, self.whole_facts(planned))
            compute = partial(self._partition, output, planned, run, self._by_keys(planned))
            if planned.is_scattered:
                parts = done.with_name(done.name + ".parts")
                self._fill(output, parts, planned, schema, compute)
                self._merge(output, parts, done, schema)
            else:
                self._fill(output, done, planned, schema, compute)
        return relation

    def _relation(self, output: str, schema: Any, folder: Path) -> SpilledRelation:
        declared, pivots = self.plan.rules.relations[output], self._pivots(output)
        return SpilledRelation(declared, schema, folder, pivots, self.num_keys, partial(self.view, output))

    def _by_keys(self, planned: Partition) -> dict[str, tuple[Path, int]]:
        """Split relation -> the folder with its facts by keys, and how many files these are."""
        folders = {}
        for relation, version in planned.split.items():
            name = self.sources[version.relation]
            files, frame = self.files[name], self.frames[name]
            assert version.column is not None
            folder = self.folder / "facts" / _as_file_name(Version(name, version.column).name)
            folders[relation] = self._written(folder, name, files, frame, version.column)
        return folders

    def _written(self, folder: Path, name: str, files: ParquetFiles, frame: Frame, column: int) -> tuple[Path, int]:
        # An earlier run may have had another limit.
        there = list(folder.parent.glob(f"{folder.name}.of-*[0-9]"))
        if there:
            return there[0], int(there[0].name.rpartition("-")[2])
        count = self._num_parts(files.num_bytes)
        folder = folder.with_name(f"{folder.name}.of-{count}")
        t = self.plan.rules.relations[name].types[column]
        with progress(f"facts of {name}", files.num_rows, enabled=self.shows) as advance:

            def look(rows: int) -> None:
                advance(rows)
                self._remaining()

            write_by_keys(
                files.batches(frame.names),
                lambda batch: keys_of_column(batch.column(column), t, self.num_keys),
                self.num_keys,
                count,
                folder,
                look,
            )
        return folder, count

    def _num_parts(self, num_bytes: int) -> int:
        """How many files the rows by keys, of this size in memory, are in."""
        return min(_MOST_PARTS, max(1, -(-8 * num_bytes // self.limit)))

    def _remaining(self) -> float | None:
        return self.deadline.remaining()

    def _fill(
        self, output: str, folder: Path, planned: Partition, schema: Any, compute: Callable[[int, int], RelationView]
    ) -> None:
        """Write files for all keys to a folder, which has its name when it is whole."""
        unfinished = folder.with_name(folder.name + ".unfinished")
        if folder.is_dir():
            return
        unfinished.mkdir(parents=True, exist_ok=True)
        is_one = bool(planned.reason)
        first = max(_FIRST, -(-8 * sum(files.num_bytes for files in self.files.values()) // self.limit))
        widths = _Widths(self.limit, self.num_keys if is_one else self.num_keys // first or 1)
        with progress(output, 100, enabled=self.shows) as advance:
            gaps, rows = _gaps(unfinished, self.num_keys), 0
            advance(100 * (1 - sum(high - low for low, high in gaps) / self.num_keys), "")
            while gaps:
                low, end = gaps[0]
                high = min(end, low + widths.width)
                self._remaining()
                try:
                    view = compute(low, high)
                    table = _table(output, view, schema)
                    taken_bytes = self._taken_bytes()
                except OutOfMemory as error:
                    empty_cache()
                    if high - low == 1 or is_one:
                        raise self._too_large(output, planned, error) from None
                    widths.failed(high - low)
                    continue
                self._write(file_of(unfinished, low, high), table)
                rows += table.num_rows
                del view, table
                empty_cache()
                arrow.default_memory_pool().release_unused()
                widths.took(high - low, taken_bytes)
                gaps[0] = high, end
                gaps = [gap for gap in gaps if gap[0] < gap[1]]
                advance(100 * (high - low) / self.num_keys, f"{rows:,} rows")
        unfinished.rename(folder)

    def _taken_bytes(self) -> int:
        """What the run has added to the process by now."""
        return policy().memory.resident_bytes() - self.base

    def _write(self, path: Path, table: Any) -> None:
        with atomic_write(path, "wb") as file:
            parquet.write_table(table, file, row_group_size=ROWS)

    def _partition(
        self,
        output: str,
        planned: Partition,
        run: PartitionRun,
        folders: Mapping[str, tuple[Path, int]],
        low: int,
        high: int,
    ) -> RelationView:
        """The rows of an output in the partition that owns these keys."""
        facts: dict[str, Any] = {}
        limit = int(_MOST * self.limit)
        for relation, (folder, count) in folders.items():
            name = self.sources[planned.split[relation].relation]
            frame = self.frames[name]
            table = read_by_keys(folder, low, high, self.num_keys, count, partial(self._look, limit))
            if table is not None:
                labels = frame.labels(self.plan.rules.relations[name])
                with partition_errors():
                    facts |= taken({relation: table.rename_columns(labels)})
        left = self._remaining()
        watch = Watch(replace(self.limits, memory_limit=limit, time_limit=left), False)
        # What partitions before have left behind is memory of this run.
        watch.base = self.base
        try:
            return run.run(np.arange(low, high), facts, watch)
        except CompileTimeout:
            raise self.deadline.error() from None

    @staticmethod
    def _look(limit: int, size: int) -> None:
        if size > limit:
            raise OutOfMemory(f"its facts are more than {shown_bytes(limit)}")

    def _too_large(self, output: str, planned: Partition, error: OutOfMemory) -> OutOfMemory:
        what = "all rows" if planned.reason else "the rows of one partition, which is as small as it can be,"
        whole = [self.sources[source] for source in planned.whole if source in self.sources]
        broadcast = ", ".join(f"`{name}`" for name in whole)
        shown = f"; each partition has all facts of {broadcast}" if whole else ""
        reason = f"; there is one partition: {planned.reason}" if planned.reason else ""
        return OutOfMemory(
            f"`{output}`: {what} do not fit into memory_limit = {shown_bytes(self.limit)}{shown}{reason}\n"
            f"  {error.message.splitlines()[0]}",
            hint="raise memory_limit; partitions that are done stay, and the next run goes on from there",
        )

    def _merge(self, output: str, parts: Path, done: Path, schema: Any) -> None:
        """Have each row that followed in several partitions once, with its tags added up."""
        there = self._relation(output, schema, parts)
        types, pivots = there.types, self._pivots(output)

        def keys(batch: Any) -> np.ndarray:
            owner = np.zeros(batch.num_rows, np.int64)
            for c in pivots:
                owner = mixed(owner, keys_of_column(batch.column(c), types[c], self.num_keys), self.num_keys)
            return owner

        count = self._num_parts(8 * len(there) * len(schema))
        folder = parts.with_name(f"{done.name}.keys")
        shutil.rmtree(folder, ignore_errors=True)
        write_by_keys(there.batches(), keys, self.num_keys, count, folder, lambda rows: self._remaining())

        def compute(low: int, high: int) -> RelationView:
            limit = int(_MEANT * self.limit)
            table = read_by_keys(folder, low, high, self.num_keys, count, partial(self._look, limit))
            return self.view(output, schema.empty_table() if table is None else table)

        planned = replace(self.planned(output), reason="" if pivots else "no column of it has keys")
        self._fill(output, done, planned, schema, compute)
        for each in (folder, parts):
            shutil.rmtree(each, ignore_errors=True)


class _Widths:
    """How many keys the next partition owns, by what those before have taken."""

    def __init__(self, limit: int, width: int):
        """width  that of the first one"""
        self.limit, self.width = limit, width
        self.most = NUM_KEYS
        self.fixed = float("inf")

    def took(self, width: int, taken_bytes: int) -> None:
        """What any partition takes is that of the least; the rest goes with the keys."""
        self.fixed = min(self.fixed, taken_bytes)
        meant = max(_MEANT * self.limit, self.fixed + 0.1 * self.limit) - self.fixed
        each = (taken_bytes - self.fixed) / width
        self.width = int(min(width * _GROWTH, self.most, meant / each if each > 0 else NUM_KEYS)) or 1

    def failed(self, width: int) -> None:
        self.most = self.width = max(1, width // 2)


def _gaps(folder: Path, num_keys: int) -> list[tuple[int, int]]:
    """The ranges of keys that no file of a folder has."""
    gaps, end = [], 0
    for low, high in files_of(folder):
        if low > end:
            gaps.append((end, low))
        end = max(end, high)
    return [*gaps, *([(end, num_keys)] if end < num_keys else [])]


def _table(output: str, view: RelationView, schema: Any) -> Any:
    """The rows of an output with the columns of files."""
    columns = [arrow_column(arrow, column) for column in view.columns]
    if view.tags is not None:
        columns.append(_tags(output, view.tags))
    columns = columns or [arrow.array(np.ones(len(view), bool))]
    return arrow.Table.from_arrays([c.cast(field.type) for c, field in zip(columns, schema)], schema=schema)


def _tags(name: str, tags: np.ndarray) -> Any:
    if tags.dtype != object:
        return arrow.array(tags)
    try:
        return arrow.array(tags.astype(np.int64))
    except OverflowError:
        raise UnsupportedError(
            f"`{name}` has the tag {max(tags)}, and files have integers of 64 bits",
            hint="leave out the folder of the run",
        ) from None


@contextmanager
def _on_disk(folder: Path) -> Iterator[None]:
    """Say in our words what is wrong with the disk."""
    try:
        yield
        return
    except OSError as error:
        message = error.strerror or str(error)
    except DerivableError as error:
        if not error.message.startswith(_CANNOT_WRITE):
            raise
        message = error.message.removeprefix(_CANNOT_WRITE)
    raise DerivableError(
        f"cannot write to the folder of the run: {message}",
        source=os.fspath(folder),
        hint="free space there, or name another folder; partitions that are done stay, and the next run goes on",
    )


def _as_file_name(name: str) -> str:
    return re.sub(r"[/%\x00-\x1f\x7f]", lambda sign: f"%{ord(sign[0]):02X}", name)


def run_on_disk(
    program: Program,
    facts: Mapping[str, Any] | None,
    provenance: Any,
    spill: str | os.PathLike,
    *,
    memory_limit: int | str | None = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    k: int | None = None,
    iteration_limit: int | None = None,
    round_limit: int | None = None,
    **others: Any,
) -> SpilledDatabase:
    """A run partition after partition, as `Program.run` has it. `others` are options that it takes only in memory."""
    wrong = [name for name, value in others.items() if value]
    if wrong:
        raise UnsupportedError(
            f"a run in partitions takes no {wrong[0]}", hint=f"leave out {wrong[0]}, or the folder of the run"
        )
    limits = checked_limits(iteration_limit, round_limit)
    inputs = checked_facts(facts)
    run = SpilledRun(program, inputs, provenance, spill, memory_limit, time_limit, progress, k, limits)
    return run.run()
