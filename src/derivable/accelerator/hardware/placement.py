"""What clock a module reaches on a device that open tools know: synthesis by Yosys, place and route by nextpnr.

The module stands in a frame of registers, one at each of its ports, so that every path of it begins and ends in a
register, and so that modules with thousands of ports fit a package with few pins:

    input --> [shift register] --> module --> [registers, each with the exclusive or of the one before] --> output

    placed = place(elaboration.hardware("lane"), device("ecp5-85k"))
    placed.frequency, placed.critical

Printed form:

    lane        154.4 MHz, measured by nextpnr-ecp5 0.11.1 on Lattice LFE5U-85F
    path        6.48 ns, 40% in cells: 17 x carry, 3 x look-up table
      from      to_power.rest_1 in exp2
      to        simple_1 in lane
    used        4 of 208 blocks of memory (1.9%)
                6 of 156 multipliers (3.8%)
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from derivable.accelerator.hardware.absorption import absorb
from derivable.accelerator.hardware.commands import run
from derivable.accelerator.hardware.elaboration import Hardware, with_parameters
from derivable.accelerator.hardware.resources import DEVICES, Device, Target, device, share
from derivable.core import html
from derivable.core.arguments import integer
from derivable.core.cache import cache_directory
from derivable.core.diagnostics import DomainError, LimitError, MissingDependencyError
from derivable.core.files import atomic_write, locked
from derivable.core.progress import progress

FRAME = "frame"
CLOCKS = ("clk", "ap_clk")
SMALLER = 'place a part of it, `design.place(..., module="ad_array")`, or design with a smaller pes='
# What the libraries of ECP5 and Gowin call what a reader knows by another name.
CELLS: Mapping[str, str] = {
    r"TRELLIS_FF|DFF\w*": "register",
    r"LUT[1-8]|TRELLIS_COMB|\$__ABC9_LUT\d": "look-up table",
    r"CCU2C|ALU": "carry",
    r"PFUMX|L6MUX21|MUX2_LUT\d": "multiplexer",
    r"MULT\w+|ALU54B": "multiplier",
    r"(PDPW|DP)16KD|BSRAM|S?DP(B|X9B)|(SP|pROM)(X9)?": "block of memory",
    r"TRELLIS_(DPR16X4|RAM\w*)|DPR16X4C?|RAM16S\w*": "distributed memory",
}
# The kinds of which a report counts cells.
_COUNTED: Mapping[str, str] = {
    "look-up table": "look-up tables",
    "register": "registers",
    "multiplier": "multipliers",
    "block of memory": "blocks of memory",
    "carry": "carries",
}
UNTIMED: Mapping[str, str] = {"gowin": "multipliers"}
# What synthesis adds to the name of a signal to make that of a cell.
_CELL_SUFFIX = re.compile(r"_(?:TRELLIS_|LUT\d|CCU2C|PFUMX|L6MUX21|DP16KD|MULT|DFF|ALU|MUX2_|DPR16X4|SDP|pROM)|\$")


@dataclass(frozen=True)
class Step:
    """A cell of a path: what it is, the signal and the module that it belongs to, and the time in it and on the wire to
    it, in nanoseconds."""

    cell: str
    signal: str
    module: str
    logic: float
    wire: float


@dataclass(frozen=True)
class Placement:
    """What place and route say of a module on a device.

    module       its name
    device       the name of the device, `title` its whole name
    frequency    that its clock reaches, in Hz
    used         cells of each kind that the design takes, and that there are: (used, available), the frame's too
    critical     the slowest path from register to register, cell by cell
    tools        name and version of the one that placed it
    untimed      kinds of cells whose time the tool does not know, and counts as none
    """

    module: str
    device: str
    title: str
    frequency: float
    used: Mapping[str, tuple[int, int]]
    critical: tuple[Step, ...]
    tools: str
    untimed: str = ""

    @property
    def nanoseconds(self) -> float:
        """The time of the slowest path."""
        return sum(step.logic + step.wire for step in self.critical)

    def clock(self) -> str:
        """The frequency, and where it comes from, in words."""
        without = f", which does not know the time of {self.untimed}" if self.untimed else ""
        return f"{self.frequency / 1e6:.1f} MHz, measured by {self.tools} on {self.title}{without}"

    def rows(self) -> list[tuple[str, str]]:
        """(title, text) of the printed form."""
        used = [("used" if k == 0 else "", text) for k, text in enumerate(self._used())]
        return [(self.module, self.clock()), *self._path(), *used]

    def _path(self) -> Iterator[tuple[str, str]]:
        first, *middle, last = self.critical
        logic = sum(step.logic for step in self.critical) / self.nanoseconds
        cells = [step.cell for step in (first, *middle) if step is not first or step.cell != "register"]
        runs = [(cell, len(list(group))) for cell, group in groupby(cells)]
        through = ", ".join(cell if count == 1 else f"{count} x {cell}" for cell, count in runs) or "wires alone"
        yield "path", f"{self.nanoseconds:.2f} ns, {logic:.0%} in cells: {through}"
        yield "  from", f"{first.signal} in {first.module}"
        yield "  to", f"{last.signal} in {last.module}"

    def _used(self) -> Iterator[str]:
        for kind, (used, there) in self.used.items():
            if used:
                yield f"{used:,} of {there:,} {kind} ({share(used, there):.1%})"

    def __str__(self) -> str:
        rows = self.rows()
        width = max(11, *(len(title) for title, _ in rows))
        return "\n".join(f"{title:{width}} {text}" for title, text in rows)

    def _repr_html_(self) -> str:
        return f"<div><b>Placement</b></div>{html.table((), self.rows(), width=400)}"


@functools.cache
def _tool(*names: str) -> tuple[str, str] | None:
    """The path and the version of the first of some tools that is installed, where this Python is or on the path."""
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    for name in names:
        tool = shutil.which(name, path=paths)
        if tool is not None:
            done = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=600)
            number = re.search(r"\d+(?:\.\d+)+", done.stdout + done.stderr)
            return tool, f"{names[-1]} {number[0]}" if number else names[-1]
    return None


def tools(target: Target) -> tuple[tuple[str, str], tuple[str, str]]:
    """The path and the version of Yosys, and of nextpnr for a family of devices.

    Raises MissingDependencyError, which says how to get what is missing.
    """
    router = {"ecp5": "nextpnr-ecp5", "gowin": "nextpnr-himbaechel-gowin"}[target.family]
    pairs = {name: _tool(f"yowasp-{name}", name) for name in ("yosys", router)}
    missing = [f"yowasp-{name}" for name, tool in pairs.items() if tool is None]
    if missing:
        raise MissingDependencyError(
            "placing needs Yosys and nextpnr, and they are not installed",
            hint=f"install them, without a compiler: `pip install {' '.join(missing)}`",
        )
    synthesis, routing = (tool for tool in pairs.values() if tool is not None)
    return synthesis, routing


def placeable(name: str | Path) -> Device:
    """A device on which designs can be placed here. Raises DomainError for another one, MissingDependencyError."""
    on = device(name)
    tools(_target(on))
    return on


def _target(on: Device) -> Target:
    if on.place is None:
        known = ", ".join(name for name in DEVICES if DEVICES[name].place is not None)
        raise DomainError(f"open tools place nothing on {on.title}", hint=f"they know {known}")
    return on.place


def place(made: Hardware, on: Device, *, seed: int = 1, time_limit: float = 7200) -> Placement:
    """Synthesise, place and route a module of a design on a device.

    seed        of the placer: others find clocks that differ by some per cent
    time_limit  seconds for each of the tools

    What was placed before is read from the cache. Raises DomainError for a device that open tools do not know,
    MissingDependencyError without the tools, LimitError where the device has too few cells, CompileTimeout.
    """
    target = _target(on)
    integer(seed, "the seed of the placer", 0, (1 << 31) - 1)
    pair = tools(target)
    parts = [made.digest, *(version for _, version in pair), str(seed), repr(target), str(on.clock), _SCRIPTS]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    path = cache_directory() / f"placed_{made.top}_{digest}.json"
    if not path.exists():
        # One step for synthesis, one for placing and routing.
        with progress(f"placing `{made.top}` on {on.title}", 2) as advance, locked(path.with_suffix(".lock")):
            if not path.exists():
                placed = _place(made, on, target, pair, seed, time_limit, advance)
                with atomic_write(path) as file:
                    file.write(json.dumps(asdict(placed)))
    return _read(json.loads(path.read_text()))


def _read(of: dict[str, Any]) -> Placement:
    used = {kind: (used, there) for kind, (used, there) in of["used"].items()}
    return Placement(**{**of, "used": used, "critical": tuple(Step(**step) for step in of["critical"])})


_PORTS = "read_verilog -sv {sources}; hierarchy -check -top {top}; proc; write_json ports.json"
_SYNTHESIS = {
    "ecp5": "read_verilog -sv {sources}; synth_ecp5 -top {top} -json netlist.json",
    "gowin": "read_verilog -sv {sources}; synth_gowin -family gw2a -top {top} -json netlist.json",
}
_SCRIPTS = "".join((_PORTS, *_SYNTHESIS.values(), "registers absorbed"))


def _place(
    made: Hardware,
    on: Device,
    target: Target,
    pair: tuple[tuple[str, str], tuple[str, str]],
    seed: int,
    time_limit: float,
    advance: Callable[..., None],
) -> Placement:
    (yosys, _), (nextpnr, version) = pair
    with tempfile.TemporaryDirectory(prefix=f"placing_{made.top}_", dir=cache_directory()) as folder:
        work = Path(folder)
        for name, text in made.files.items():
            (work / name).write_text(text, encoding="utf-8")
        top = f"{made.top}.sv"
        (work / top).write_text(with_parameters(made.files[top], made.parameters), encoding="utf-8")
        listed = " ".join(made.sources)
        run([[yosys, "-q", "-p", _PORTS.format(sources=listed, top=made.top)]], work, made.top, time_limit, SMALLER)
        modules = json.loads((work / "ports.json").read_text())["modules"]
        (work / f"{FRAME}.sv").write_text(frame(made.top, _ports(modules[_source_name(modules, made.top)])))
        script = _SYNTHESIS[target.family].format(sources=f"{listed} {FRAME}.sv", top=FRAME)
        run([[yosys, "-q", "-p", script]], work, made.top, time_limit, SMALLER)
        description = json.loads((work / "netlist.json").read_text())
        if target.family == "ecp5":
            absorb(description["modules"][FRAME])
            (work / "netlist.json").write_text(json.dumps(description))
        advance(note="place and route")
        options = ["--json", "netlist.json", "--report", "report.json", "--write", "placed.json"]
        options += ["--freq", f"{on.clock / 1e6:g}", "--timing-allow-fail", "--seed", str(seed)]
        try:
            run([[nextpnr, "-q", *_options(target, work), *options]], work, made.top, time_limit, SMALLER)
        except DomainError as error:
            if re.search(r"unable to (place|find)|not enough|no Bels? remaining|Unable to place", error.message, re.I):
                raise LimitError(f"{on.title} has no room for `{made.top}`: {error.message}", hint=SMALLER) from None
            raise
        advance()
        report = json.loads((work / "report.json").read_text())
        netlist = description["modules"][FRAME]["cells"]
    paths = [
        path for path in report["critical_paths"] if path["from"].startswith("posedge") and path["from"] == path["to"]
    ]
    slowest = max(paths, key=lambda path: sum(part["delay"] for part in path["path"]))
    types = {name: cell["type"] for name, cell in netlist.items()}
    instances = dict(_instances(modules, _source_name(modules, made.top), made.top))
    return Placement(
        module=made.top,
        device=on.name,
        title=on.title,
        frequency=1e6 * min(clock["achieved"] for clock in report["fmax"].values()),
        used=_used(report["utilization"]),
        critical=tuple(_steps(slowest["path"], types, instances)),
        tools=version,
        untimed=UNTIMED.get(target.family, ""),
    )


def _options(target: Target, work: Path) -> list[str]:
    """The device in nextpnr's options, and the file of the frame's pins where a family needs one."""
    if target.family == "ecp5":
        return [f"--{target.part}", "--package", target.package, "--speed", target.speed]
    pins = {"clk": target.clock_pin, "from_pin": target.input_pin, "to_pin": target.output_pin}
    (work / "pins.cst").write_text("".join(f'IO_LOC "{port}" {pin};\n' for port, pin in pins.items()))
    return ["--device", target.part, f"--vopt=family={target.series}", "--vopt=cst=pins.cst"]


def _source_name(modules: Mapping[str, Any], name: str) -> str:
    """The module of Yosys' netlist that a module of the sources became: its name, or one with its parameters."""
    if name in modules:
        return name
    return next(key for key, module in modules.items() if module["attributes"].get("hdlname") == name)


def _ports(module: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    return {name: (port["direction"], len(port["bits"])) for name, port in module["ports"].items()}


def frame(module: str, ports: Mapping[str, tuple[str, int]]) -> str:
    """SystemVerilog of a module with a register at each of its ports, and three pins.

    ports  (direction, bits) by name

    Raises DomainError for a module without a clock.
    """
    clock = next((name for name in CLOCKS if name in ports), None)
    if clock is None:
        raise DomainError(f"`{module}` has no clock, and no path of registers", hint="place a module that has one")
    into = {name: bits for name, (direction, bits) in ports.items() if direction == "input" and name != clock}
    out = {name: bits for name, (direction, bits) in ports.items() if direction == "output"}
    wide_in, wide_out = max(1, sum(into.values())), max(1, sum(out.values()))
    lines = [f"module {FRAME} (input wire clk, input wire from_pin, output wire to_pin);"]
    lines += [
        f"  reg [{wide_in - 1}:0] given;",
        f"  reg [{wide_out - 1}:0] taken;",
        f"  wire [{wide_out - 1}:0] result;",
    ]
    # The two shift registers: a bit a cycle goes in, and every bit that comes out changes what leaves.
    lines += [f"  always @(posedge clk) given <= (given << 1) | {wide_in}'(from_pin);"]
    lines += ["  always @(posedge clk) taken <= (taken << 1) ^ result;", f"  assign to_pin = taken[{wide_out - 1}];"]
    connections = [f".{clock}(clk)"]
    for wire, group in (("given", into), ("result", out)):
        first = 0
        for name, bits in group.items():
            connections.append(f".{name}({wire}[{first} +: {bits}])")
            first += bits
    lines += [f"  {module} framed ({', '.join(connections)});", "endmodule"]
    return "\n".join(lines) + "\n"


def _instances(modules: Mapping[str, Any], key: str, name: str, path: str = "framed") -> Iterator[tuple[str, str]]:
    """(path of an instance, name of its module), of a module and of all in it."""
    yield path, name
    for cell, description in modules[key]["cells"].items():
        inner = description["type"]
        if inner in modules:
            source = modules[inner]["attributes"].get("hdlname") or inner
            yield from _instances(modules, inner, source, f"{path}.{cell}")


def _steps(
    parts: Iterable[Mapping[str, Any]], types: Mapping[str, str], instances: Mapping[str, str]
) -> Iterator[Step]:
    """The cells of a path, each with the wire that leads to it."""
    wire = 0.0
    for part in parts:
        if part["type"] == "routing":
            wire += part["delay"]
            continue
        name = part["from"]["cell"]
        signal = _CELL_SUFFIX.split(name)[0]
        owner = signal
        while owner and owner not in instances:
            owner = owner.rpartition(".")[0]
        yield Step(
            # nextpnr makes two cells of a pair of carries, which is one of the netlist.
            _kind(types.get(name.split("$CCU2")[0], "")),
            signal.removeprefix("framed.") or signal,
            instances.get(owner, "the frame"),
            part["delay"],
            wire,
        )
        wire = 0.0


def _kind(cell: str) -> str:
    # nextpnr adds carries of its own.
    return next((word for pattern, word in CELLS.items() if re.fullmatch(pattern, cell)), cell or "carry")


def _used(counts: Mapping[str, Mapping[str, int]]) -> dict[str, tuple[int, int]]:
    """Cells by what a reader calls them; kinds of which nothing is used are left out."""
    used: dict[str, tuple[int, int]] = {}
    for cell, count in counts.items():
        kinds = _COUNTED.get(_kind(cell))
        if count["used"] and kinds is not None:
            before, there = used.get(kinds, (0, 0))
            used[kinds] = before + count["used"], there + count["available"]
    return used
