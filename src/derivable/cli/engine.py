"""`derivable run --engine` and `--spill`: the session that a program runs in, and its facts and results."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click


class Collected(dict):
    """The relations of a run in partitions, in this process."""

    evidence_bounds = None


def engine_of(engine: str | None, remote: str | None) -> Any:
    """What `Program.run` takes as its engine; None for this machine. Raises click.UsageError for a remote Sail."""
    if engine == "sail":
        if remote is not None:
            raise click.UsageError("--remote is the address of --engine spark; a server of Sail has one too.")
        return engine
    if engine is None and remote is None:
        return None
    if remote is not None:
        return remote
    from derivable.core.lazy import optional_module

    # The one that spark-submit or SPARK_REMOTE says.
    return optional_module("pyspark.sql", "pyspark-client", "spark").SparkSession.builder.getOrCreate()


def engine_facts(folder: str, relations: dict[str, Any]) -> dict[str, Path]:
    """Relation -> its file or folder of Parquet in a folder, which is read there."""
    paths = {name: Path(folder) / f"{name}.parquet" for name in relations}
    return {name: path for name, path in paths.items() if path.exists()}


def write_frames(database: Any, names: list[str], folder: Path, as_file_name: Any) -> None:
    """Have the engine write relations as folders of Parquet; none of them comes here.

    On this machine all of them are written before they take the places of others, so that a run that fails changes
    nothing. What other machines write is not seen from here: the engine overwrites it.
    """
    from derivable.datalog.distribution.session import is_local, session_errors

    folder = folder.absolute()
    frames = {folder / f"{as_file_name(name)}.parquet": (name, database[name].to_spark()) for name in names}
    if all(is_local(frame.sparkSession) for _, frame in frames.values()):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".derivable-") as made:
            for number, (name, frame) in enumerate(frames.values()):
                with session_errors(f"`{name}`"):
                    frame.write.parquet(f"{made}/{number}")
            for number, path in enumerate(frames):
                if path.exists():
                    path.rename(f"{made}/old_{number}")
                Path(f"{made}/{number}").rename(path)
    else:
        for path, (name, frame) in frames.items():
            with session_errors(f"`{name}`"):
                frame.write.mode("overwrite").parquet(str(path))
    for path in frames:
        click.echo(path, err=True)


def write_spilled(database: Any, names: list[str], folder: Path, as_file_name: Any) -> None:
    """Write relations that are on disk as files of Parquet, a batch of rows at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / f"{as_file_name(name)}.parquet"
        database[name].to_parquet(path)
        click.echo(f"{path}: {len(database[name]):,} facts", err=True)


def collected(database: Any, names: list[str]) -> Collected:
    """The rows of relations, which come here."""
    return Collected((name, database[name].collected) for name in names)
