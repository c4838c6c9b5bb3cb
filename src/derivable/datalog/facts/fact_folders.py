"""Folders of fact files, which are named after their relations."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from derivable.core.diagnostics import ParseError
from derivable.datalog.facts.fact_files import ENDINGS, ending_of, read_facts
from derivable.datalog.facts.inputs import Columns
from derivable.datalog.rules.nodes import Relation


def files_in(directory: str | os.PathLike, names: Iterable[str]) -> dict[str, Path]:
    """Relation -> the file in `directory` that is named after it.

    Raises ParseError if two files are for one relation, and if no file is for any.
    """
    folder, known = Path(directory), list(names)
    if not folder.is_dir():
        hint = "--facts takes a folder of fact files, which are named after their relations: DIR/edge.csv"
        if folder.is_file():
            hint = f"--facts takes a folder of fact files: `--facts {folder.parent}`, where"
            hint += f" RELATION{ending_of(folder)} has the facts of RELATION"
        raise ParseError("not a directory", source=os.fspath(directory), hint=hint)
    paths: dict[str, Path] = {}
    others = []
    for path in sorted(folder.iterdir()):
        ending = ending_of(path)
        if ending not in ENDINGS or not path.is_file():
            continue
        stem = re.sub(r"\.gz$", "", path.name, flags=re.IGNORECASE)[: -len(ending)]
        if stem not in known:
            others.append(path.name)
        elif stem in paths:
            raise ParseError(
                f"two files for the relation `{stem}`: {paths[stem].name} and {path.name}", source=os.fspath(folder)
            )
        else:
            paths[stem] = path
    if not paths:
        others_there = f"; it has {', '.join(others[:5])}" if others else ""
        raise ParseError(
            f"no file is named after a relation of the program{others_there}",
            source=os.fspath(folder),
            hint=f"the relations are {', '.join(known)}; name a file RELATION.csv, RELATION.facts or RELATION.txt",
        )
    return paths


def facts_from(
    directory: str | os.PathLike, relations: Mapping[str, Relation], look: Callable[..., Any] | None = None
) -> dict[str, Columns | Path]:
    """Facts for `Program.run` from the files in `directory` that are named after a relation (name -> record).

    look  checks limits while files are read

    The types of a relation that is not declared are those of its file, which is read when they are known.
    """
    return {
        name: path
        if relations[name].is_input
        else read_facts(path, name, relations[name].types, relations[name].column_names, look=look)
        for name, path in files_in(directory, relations).items()
    }
