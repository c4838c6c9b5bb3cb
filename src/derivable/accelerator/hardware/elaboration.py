"""From the parameters of a machine to its SystemVerilog: which sources, which parameters, and the files of a design.

The sources are parametric and in the package (`rtl/`, a module a file). What is made here is what depends on Python:
`isa.svh`, the places of the fields of instructions, the tables of functions, and a top whose parameters are numbers.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from derivable.accelerator.machine.instructions import (
    FIELDS,
    HEADER,
    OPERATIONS,
    QUEUE,
    TYPES,
    UNITS,
    WORDS,
    Machine,
    places,
)
from derivable.accelerator.numbers import fixed
from derivable.core.diagnostics import DerivableError, DomainError
from derivable.core.files import checked_path
from derivable.core.registry import suggestion

FOLDER = Path(__file__).with_name("rtl")
TOP = "accelerator"
# Comments, and what only simulators with CHECKS and provers see.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|`ifdef (?:CHECKS|FORMAL)\b.*?`endif", re.DOTALL)


@dataclass(frozen=True)
class Hardware:
    """A module with its parameters, and all the text that it needs.

    top         the name of the module
    parameters  its parameters, as far as they are not as in the source
    files       text by name of file, without the folder; a module a file, and what modules include
    """

    top: str
    parameters: Mapping[str, int]
    files: Mapping[str, str] = field(repr=False)

    @property
    def digest(self) -> str:
        """A hash of all of it, hexadecimal: what is built from it is found by this."""
        parts = [self.top, *(f"{name}={value}" for name, value in sorted(self.parameters.items()))]
        parts += [part for item in sorted(self.files.items()) for part in item]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def sources(self) -> list[str]:
        """The files that are compiled: all but those that are included."""
        return sorted(name for name in self.files if name.endswith(".sv"))


def package() -> str:
    """The text of `isa.svh`: where the fields of instructions are, and the codes of units, operations and types."""
    lines = [
        "// Generated from accelerator/machine/instructions.py: fields of instructions as [LSB +: BITS], and codes.",
        "// A module that includes it uses some of them.",
        "/* verilator lint_off UNUSEDPARAM */",
    ]
    lines += [f"localparam int INSTRUCTION_BITS = {32 * WORDS};", f"localparam int QUEUE_DEPTH = {QUEUE};"]
    lines += [f"localparam int {name}_LSB = {place[0]}, {name}_BITS = {place[1]};" for name, place in HEADER.items()]
    lines += [f"localparam logic [2:0] UNIT_{unit.upper()} = 3'd{code};" for code, unit in enumerate(UNITS)]
    lines += [f"localparam logic [1:0] TYPE_{name.upper()} = 2'd{code};" for code, name in enumerate(TYPES)]
    for unit in UNITS:
        lines += [f"// {unit}"]
        lines += [
            f"localparam logic [3:0] {unit.upper()}_{operation.upper()} = 4'd{code};"
            for code, operation in enumerate(OPERATIONS[unit])
        ]
        for item, (first, bits) in zip(FIELDS[unit], places(unit).values()):
            name = f"{unit}_{item.name}".upper()
            kind = "signed" if item.is_signed else "unsigned"
            names = f": {', '.join(item.names)}" if item.names else ""
            lines.append(f"localparam int {name}_LSB = {first}, {name}_BITS = {bits};  // {kind}{names}")
    lines += ["/* verilator lint_on UNUSEDPARAM */"]
    return "\n".join(lines) + "\n"


@functools.cache
def _texts() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.sv"))} | {
        "isa.svh": package(),
        "exp2_table.sv": fixed.verilog("exp2", fixed.EXP2),
        "log2_table.sv": fixed.verilog("log2", fixed.LOG2),
    }


def modules() -> list[str]:
    """The modules of the package."""
    return [name.removesuffix(".sv") for name in _texts() if name.endswith(".sv")]


def _file_of(module: str, known: Mapping[str, str]) -> str:
    """Raises DomainError for a module that is nowhere."""
    if f"{module}.sv" not in known:
        names = [name.removesuffix(".sv") for name in known if name.endswith(".sv")]
        raise DomainError(
            f"there is no module {module}", hint=suggestion(module, names, f"there are {', '.join(names)}")
        )
    return f"{module}.sv"


def _declared(text: str) -> list[str]:
    """The names of the parameters of a module."""
    return re.findall(r"\bparameter\b[^,;()=]*?(\w+)\s*=", _COMMENT.sub("", text))


def hardware(top: str, parameters: Mapping[str, int] | None = None, extra: Mapping[str, str] | None = None) -> Hardware:
    """A module of the package, or of `extra`, with the modules that it uses, and those that they use.

    extra  text by name of file, beside the package's: `{"bench.sv": "module bench ..."}`

    Raises DomainError for a module that is nowhere, or a parameter that the module does not have.
    """
    known = _texts() | dict(extra or {})
    found: dict[str, str] = {}
    waiting = [_file_of(top, known)]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = known[name]
        words = set(re.findall(r"\w+", _COMMENT.sub("", known[name])))
        waiting += [other for other in known if other.split(".")[0] in words]
    for name in set(parameters or {}).difference(_declared(known[f"{top}.sv"])):
        raise DomainError(f"the module {top} has no parameter {name}")
    return Hardware(top, dict(parameters or {}), found)


def parameters(machine: Machine) -> dict[str, int]:
    """The parameters of the module `accelerator` of a machine."""
    return {
        "H": machine.height,
        "W": machine.width,
        "N": machine.sub_arrays,
        "S": machine.lanes,
        "L": machine.line,
        **{f"{name.upper()}_WORDS": getattr(machine, name) for name in "abkcp"},
        "X_BYTES": machine.x,
        "PROGRAM": machine.program,
    }


def kernel(machine: Machine) -> Hardware:
    """The module `kernel` of a machine. Its parameter IDENTITY is a hash of the accelerator in it."""
    values = parameters(machine)
    return hardware("kernel", values | {"IDENTITY": int(hardware(TOP, values).digest[:8], 16) >> 1})


def parameters_of(module: str, machine: Machine) -> dict[str, int]:
    """The parameters of a module of a machine. Raises DomainError for a module that is nowhere."""
    names = _declared(_texts()[_file_of(module, _texts())])
    return {name: value for name, value in parameters(machine).items() if name in names}


def ports(made: Hardware) -> dict[str, tuple[str, int]]:
    """(direction, bits) of the ports of a module of the package, by name, for its parameters."""
    text = _COMMENT.sub("", made.files[f"{made.top}.sv"])
    declared = re.findall(
        r"^\s*(input|output)\s+(?:logic|wire|reg)\s*(?:\[([\w*+\s-]+):0\])?\s*(\w+)\s*[,\n)]", text, re.M
    )
    return {name: (direction, 1 + _number(highest or "0", made.parameters)) for direction, highest, name in declared}


def _number(expression: str, values: Mapping[str, int]) -> int:
    """A sum of products of numbers and parameters, such as 8*L-1."""
    terms = re.findall(r"([+-]?)([^+-]+)", re.sub(r"\s", "", expression))
    products = [math.prod(int(values.get(factor, factor)) for factor in term.split("*")) for _, term in terms]
    return sum(-product if sign == "-" else product for (sign, _), product in zip(terms, products))


def listed(made: Hardware) -> str:
    """The sources of a design as tools take them: relative to the list, with `-F`."""
    return "".join(f"{name}\n" for name in ("+incdir+.", *made.sources))


def with_parameters(text: str, values: Mapping[str, int]) -> str:
    """The text of a module, the values of its parameters replaced."""
    for name, value in values.items():
        text = re.sub(rf"(parameter\s+\w+\s+{name}\s*=)[^,/\n)]*?(\s*(?:,|//|\n|\)))", rf"\1 {value}\2", text, count=1)
    return text


def write(made: Hardware, directory: str | os.PathLike, more: Mapping[str, str] | None = None) -> Path:
    """Write all files of a design, whole or not at all, into a folder that does not exist or is one that this wrote.

    more  text by name of further files, which replaces that of `made`

    There is also `files.f`, the list of the sources, relative to itself: `verilator -F FOLDER/files.f` works from
    anywhere. The parameters of the top are those of `made`. Returns the folder. Raises DerivableError where it cannot
    be written.
    """
    target = checked_path(directory)
    texts = dict(made.files)
    texts[f"{made.top}.sv"] = with_parameters(texts[f"{made.top}.sv"], made.parameters)
    texts["files.f"] = listed(made)
    texts |= more or {}
    unfinished = None
    try:
        if target.exists() and not (target / "files.f").is_file() and any(target.iterdir()):
            raise DerivableError(
                "the folder has other files", source=os.fspath(directory), hint="give a new or an empty folder"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(".unfinished", f".{target.name}.", target.parent))
        for name, text in texts.items():
            (unfinished / name).write_text(text, encoding="utf-8")
        os.chmod(unfinished, 0o755)
        if target.exists():
            shutil.rmtree(target)
        os.replace(unfinished, target)
    except OSError as error:
        raise DerivableError(
            f"cannot write the folder: {error.strerror or error}",
            source=os.fspath(directory),
            hint="check that the folder above exists and may be written",
        ) from None
    finally:
        if unfinished is not None:
            shutil.rmtree(unfinished, ignore_errors=True)
    return target
