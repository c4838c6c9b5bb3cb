"""Reading a circuit from any of the known files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Literal as OneOf

import numpy as np

from derivable.circuit.files.sdd_file import from_sdd, load_sdd
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.kernels.parse_bytes import first_line
from derivable.core.arguments import integer
from derivable.core.diagnostics import ParseError
from derivable.core.files import read_buffer
from derivable.core.progress import Deadline, checked_time_limit
from derivable.device.cpu.pages import empty_pages

if TYPE_CHECKING:
    from derivable.circuit.graph.vtree import Vtree

__all__ = ["from_sdd", "load"]

_EXTENSIONS = {
    ".sdd": "SDD",
    ".nnf": "d-DNNF",
    ".ddnnf": "d-DNNF",
    ".cnf": "CNF",
    ".dimacs": "CNF",
    ".dvc": "circuit",
}
_LINE_END = re.compile(rb"[\r\n]")
_KNOWN = "known are SDD (.sdd), d-DNNF of D4 or c2d (.nnf), DIMACS CNF (.cnf) and this library's own format (.dvc)"


def load(
    path: str | os.PathLike,
    *,
    vtree: str | os.PathLike | Vtree | bool | None = None,
    num_variables: int | None = None,
    time_limit: float | None = None,
) -> Circuit:
    """Read a circuit: SDD, d-DNNF in D4's or c2d's dialect, DIMACS CNF, or this library's own format.

    path           may be gzipped, whatever its name; the content decides, then the extension
    vtree          for SDD files; see `derivable.circuit.files.sdd_file.load_sdd`
    num_variables  None takes what the file (or vtree) says, or else the greatest variable in it
    time_limit     seconds for decompressing and, of a CNF, for compiling; then CompileTimeout is raised

    A CNF is compiled; `derivable.circuit.compile` has the options for that. Raises ParseError with
    file, line, column and caret for anything that does not follow its format, or if the extension and
    the content contradict each other.
    """
    if num_variables is not None:
        num_variables = integer(num_variables, "num_variables", 0)
    if isinstance(path, str):
        from derivable.circuit.formulas.dimacs import refuse_content

        refuse_content(path)
    deadline = Deadline(checked_time_limit(time_limit), "reading", "raise time_limit")
    data = read_buffer(path, lambda size: empty_pages(size, np.uint8), deadline.remaining)
    left = deadline.remaining()
    return parse(data, os.fspath(path), vtree=vtree, num_variables=num_variables, time_limit=left)


def parse(
    data: bytes | memoryview,
    name: str,
    *,
    vtree: str | os.PathLike | Vtree | bool | None = None,
    num_variables: int | None = None,
    time_limit: float | None = None,
    compiler: OneOf["sdd", "d4"] = "sdd",
) -> Circuit:
    """The circuit in the content of a file, which has been decompressed; as `load`, which takes the file's name."""
    extension = Path(name.lower().removesuffix(".gz")).suffix
    announced, found = _EXTENSIONS.get(extension), content_format(data)
    if found is not None and announced is not None and found != announced:
        raise ParseError(
            f"the extension {extension} says {announced}, the content is {found}",
            source=name,
            hint="rename the file if the content is right",
        )
    form = found or announced
    if form is None:
        if not bytes(data).strip():
            raise ParseError("the file is empty", source=name, hint=_KNOWN)
        raise ParseError("the file is in no known circuit format", source=name, hint=_KNOWN)
    if form == "SDD":
        return load_sdd(name, vtree, num_variables, data)
    if form == "d-DNNF":
        from derivable.circuit.files.nnf_file import parse_nnf

        return parse_nnf(data, name, num_variables)
    if form == "CNF":
        from derivable.circuit.compilation.compilation import compile
        from derivable.circuit.formulas.dimacs import parse_dimacs_bytes

        return compile(parse_dimacs_bytes(bytes(data), name), compiler, time_limit=time_limit)
    from derivable.circuit.files import store

    return store.parse(bytes(data), name)


def content_format(data: bytes | memoryview) -> str | None:
    """The format that the first line which is neither blank nor a comment shows, or None."""
    from derivable.circuit.files.store import MAGIC

    if bytes(data[: len(MAGIC)]) == MAGIC:
        return "circuit"
    start = int(first_line(np.frombuffer(data, np.uint8)))
    found = _LINE_END.search(data, start)
    words = bytes(data[start : min(found.start() if found else len(data), start + 200)]).split()
    if not words:
        return None
    if words[0] == b"sdd":
        return "SDD"
    if words[0] == b"nnf" or (words[0] in (b"o", b"a", b"t", b"f") and len(words) > 1 and words[1].isdigit()):
        return "d-DNNF"
    return "CNF" if words[:2] == [b"p", b"cnf"] else None
