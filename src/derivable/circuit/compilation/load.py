"""Reading a circuit from any of the known files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from typing import Literal as OneOf

import numpy as np

from derivable.circuit.files.sdd_file import from_sdd, load_sdd
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.kernels.parse_bytes import first_line
from derivable.core.arguments import integer
from derivable.core.diagnostics import ParseError
from derivable.core.files import read_buffer
from derivable.core.other_files import other_language
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
# Bytes by which a file of another language is known.
_BEGINNING = 4096
_LINE_END = re.compile(rb"[\r\n]")
_KNOWN = "known are SDD (.sdd), d-DNNF of D4 or c2d (.nnf), DIMACS CNF (.cnf) and this library's own format (.dvc)"


def load(
    path: str | os.PathLike | Sequence[str | os.PathLike],
    *,
    vtree: str | os.PathLike | Vtree | bool | None = None,
    num_variables: int | None = None,
    time_limit: float | None = None,
    true_lits: Iterable[int] = (),
    false_lits: Iterable[int] = (),
    strict: bool = True,
) -> Circuit:
    """Read a circuit: SDD, d-DNNF in D4's or c2d's dialect, DIMACS CNF, or this library's own format.

    path           may be gzipped, whatever its name; the content decides, then the extension. Several files make one
                   circuit, with the roots of the first, then those of the second, and so on
    vtree          for SDD files, see `derivable.circuit.files.sdd_file.load_sdd`; for a CNF the tree to compile under
    num_variables  None takes what the file (or vtree) says, or else the greatest variable in it
    time_limit     seconds for decompressing and, of a CNF, for compiling; then CompileTimeout is raised
    strict         of a CNF, whether its header must be right: see `formulas.dimacs.parse_dimacs`
    true_lits, false_lits  literals that become constants; see `CircuitBuilder.add`

    A CNF is compiled; `derivable.circuit.compile` has the options for that. Raises ParseError with
    file, line, column and caret for anything that does not follow its format, or if the extension and
    the content contradict each other.
    """
    if num_variables is not None:
        num_variables = integer(num_variables, "num_variables", 0)
    deadline = Deadline(checked_time_limit(time_limit), "reading", "raise time_limit")
    paths: Sequence[Any] = path if isinstance(path, list | tuple) else [path]
    circuits = [_read(one, vtree, num_variables, deadline, strict) for one in paths]
    true_lits, false_lits = list(true_lits), list(false_lits)
    if len(circuits) == 1 and not true_lits and not false_lits:
        return circuits[0]
    return _together(circuits, [os.fspath(one) for one in paths], num_variables, true_lits, false_lits)


def _together(
    circuits: list[Circuit], names: list[str], num_variables: int | None, true_lits: list[int], false_lits: list[int]
) -> Circuit:
    """One circuit with the roots of all, in order."""
    builder = CircuitBuilder()
    roots = [builder.add(circuit, true_lits, false_lits) for circuit in circuits]
    first = circuits[0] if circuits else builder.build([], num_variables)
    for circuit, name in zip(circuits, names):
        for part in ("weights", "names"):
            one, other = getattr(first, part), getattr(circuit, part)
            if (one is None) != (other is None) or (one is not None and not np.array_equal(one, other)):
                raise ParseError(
                    f"its {part} are not those of {names[0]}, and one circuit has one set of them",
                    source=name,
                    hint="load them one by one, and join them with CircuitBuilder.add",
                )
    variables = max((circuit.num_variables for circuit in circuits), default=0)
    origins = {circuit.origin for circuit in circuits}
    keeps = sorted(true_lits) == sorted(-literal for literal in false_lits)  # both literals of each variable
    origin = "" if "" in origins or not keeps else origins.pop() if len(origins) == 1 else "decision"
    trees = {None if circuit.vtree is None else circuit.vtree.text() for circuit in circuits}
    joined = builder.build(np.concatenate([*roots, np.zeros(0, np.int64)]), num_variables or variables, None, origin)
    vtree = first.vtree if len(trees) == 1 and not true_lits and not false_lits else None
    return replace(joined, weights=first.weights, names=first.names, vtree=vtree)


def _read(path: str | os.PathLike, vtree: Any, num_variables: int | None, deadline: Deadline, strict: bool) -> Circuit:
    if isinstance(path, str):
        from derivable.circuit.formulas.dimacs import refuse_content

        refuse_content(path)
    data = read_buffer(path, lambda size: empty_pages(size, np.uint8), deadline.remaining)
    options = {"vtree": vtree, "num_variables": num_variables, "time_limit": deadline.remaining(), "strict": strict}
    return parse(data, os.fspath(path), **options)


def parse(
    data: bytes | memoryview,
    name: str,
    *,
    vtree: str | os.PathLike | Vtree | bool | None = None,
    num_variables: int | None = None,
    time_limit: float | None = None,
    compiler: OneOf["auto", "elimination", "sdd", "d4"] = "sdd",
    strict: bool = True,
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
        language = other_language(name, bytes(data[:_BEGINNING]).decode("utf-8", "replace"))
        if language is not None:
            raise ParseError(f"this is {language.title}, and no circuit or CNF", source=name, hint=language.hint)
        raise ParseError("the file is in no known circuit format", source=name, hint=_KNOWN)
    if form == "SDD":
        return load_sdd(name, vtree, num_variables, data)
    if form == "d-DNNF":
        from derivable.circuit.files.nnf_file import parse_nnf

        return parse_nnf(data, name, num_variables)
    if form == "CNF":
        from derivable.circuit.compilation.compilation import compile
        from derivable.circuit.formulas.dimacs import parse_dimacs_bytes

        cnf = parse_dimacs_bytes(bytes(data), name, strict)
        tree = "elimination" if vtree is None or isinstance(vtree, bool) else vtree
        return compile(cnf, compiler, num_variables=num_variables, time_limit=time_limit, vtree=tree)
    from derivable.circuit.files import store

    circuit = store.parse(bytes(data), name)
    if num_variables is None or num_variables == circuit.num_variables:
        return circuit
    if circuit.weights is not None or circuit.names is not None or num_variables < circuit.num_variables:
        raise ParseError(
            f"num_variables is {num_variables}, and the circuit has {circuit.num_variables}, with what belongs to them",
            source=name,
            hint="leave num_variables out",
        )
    return replace(circuit, num_variables=num_variables)


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
