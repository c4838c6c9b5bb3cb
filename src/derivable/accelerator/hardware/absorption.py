"""Registers that move into the blocks of memory and multipliers of an ECP5, whose registers Yosys leaves unused.

A block of memory takes 5.8 ns from its clock to its outputs, and a multiplier nearly as long from its operands to its
product; with the registers that are in them, most of that is no part of a path. Tools of vendors move registers into
them, and so does this, on the netlist between synthesis and placing:

    registers --> MULT18X18D --> registers        MULT18X18D with REG_INPUTA, REG_INPUTB and REG_OUTPUT
                  DP16KD     --> registers        DP16KD with REGMODE "OUTREG"

Registers are moved where every cycle stays the same: they have no reset, all bits of a port have the same clock and
enable, and nothing else reads the bits in front of registers behind a cell. The registers of the two operands of a
product are moved together, since nextpnr knows the times of both or none. A memory whose reads have another enable
than the registers behind it is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Bit: TypeAlias = int | str  # of a net, or "0", "1", "x"
Cell: TypeAlias = dict[str, Any]
Controls: TypeAlias = tuple[Bit, Bit]  # clock and enable
_REGISTER, _MEMORY, _MULTIPLIER = "TRELLIS_FF", "DP16KD", "MULT18X18D"
_PLAIN = {"CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET", "GSR": "DISABLED"}


def absorb(module: Mapping[str, Any]) -> int:
    """Move registers of a module into its blocks of memory and multipliers; the module, as Yosys writes it in JSON, is
    changed.

    Returns how many registers are gone.
    """
    netlist = _Netlist(module)
    before = len(netlist.cells)
    for cell in [*netlist.cells.values()]:
        if cell["type"] == _MEMORY:
            _behind_memory(netlist, cell)
        elif cell["type"] == _MULTIPLIER:
            _behind_multiplier(netlist, cell)
    for cell in netlist.cells.values():
        if cell["type"] == _MULTIPLIER:
            _before_multiplier(netlist, cell)
    netlist.remove_unread()
    return before - len(netlist.cells)


class _Netlist:
    """The cells of a module by name.

    reads    how many inputs of cells and ports of the module read each bit
    into     registers without a reset by the bit that they read, where it is the only one that reads it
    out_of   registers without a reset by the bit that they give
    """

    def __init__(self, module: Mapping[str, Any]):
        self.cells: dict[str, Cell] = module["cells"]
        self.reads: dict[Bit, int] = {}
        for port in module["ports"].values():
            self._count(port["bits"] if port["direction"] == "output" else ())
        for cell in self.cells.values():
            for port, bits in cell["connections"].items():
                self._count(bits if cell["port_directions"][port] == "input" else ())
        plain = {name: cell for name, cell in self.cells.items() if _is_plain(cell)}
        self.out_of = {cell["connections"]["Q"][0]: name for name, cell in plain.items()}
        self.into = {
            cell["connections"]["DI"][0]: name
            for name, cell in plain.items()
            if self.reads[cell["connections"]["DI"][0]] == 1
        }

    def _count(self, bits: Iterable[Bit]) -> None:
        for bit in bits:
            self.reads[bit] = self.reads.get(bit, 0) + 1

    def controls(self, names: Iterable[str | None]) -> Controls | None:
        """Clock and enable of registers that all have the same ones."""
        controls = {None if name is None else _controls(self.cells[name]) for name in names}
        return controls.pop() if len(controls) == 1 else None

    def take_behind(
        self, cell: Cell, ports: Iterable[str], clock: Bit | None = None, enable: Bit = "1"
    ) -> Controls | None:
        """Move the registers that read ports of a cell into it, if there is one for each bit that is read.

        clock, enable  of the cell itself: those of the registers have to be the same, where it has any
        """
        at = cell["connections"]
        used = {port: at[port][0] for port in ports if port in at and self.reads.get(at[port][0])}
        names = {port: self.into.get(bit) for port, bit in used.items()}
        controls = self.controls(names.values())
        if controls is None or clock not in (None, controls[0]) or enable not in ("1", controls[1]):
            return None
        for port, name in names.items():
            if name is not None:
                at[port] = self.cells.pop(name)["connections"]["Q"]
                self.out_of.pop(at[port][0])
        return controls

    def remove_unread(self) -> None:
        """Remove the registers whose bits nothing reads."""
        for bit, name in self.out_of.items():
            if not self.reads.get(bit):
                del self.cells[name]


def _behind_memory(netlist: _Netlist, cell: Cell) -> None:
    at, parameters = cell["connections"], cell["parameters"]
    # A word of 36 bits comes from both halves, by the clock and the enable of B.
    is_wide = all(int(parameters[f"DATA_WIDTH_{half}"], 2) == 36 for half in "AB")
    for halves in ("AB",) if is_wide else ("A", "B"):
        clock, enable = at[f"CLK{halves[-1]}"][0], at[f"CE{halves[-1]}"][0]
        ports = [f"DO{half}{k}" for half in halves for k in range(18)]
        controls = netlist.take_behind(cell, ports, clock, enable)
        if controls is None:
            continue
        for half in halves:
            parameters[f"REGMODE_{half}"] = "OUTREG"
            at[f"OCE{half}"] = [controls[1]]


def _behind_multiplier(netlist: _Netlist, cell: Cell) -> None:
    controls = netlist.take_behind(cell, [f"P{k}" for k in range(36)])
    if controls is not None:
        _clock(cell, ("OUTPUT",), controls)


def _before_multiplier(netlist: _Netlist, cell: Cell) -> None:
    at = cell["connections"]
    ports = [f"{half}{k}" for half in "AB" for k in range(18) if at[f"{half}{k}"][0] not in ("0", "x")]
    names = [netlist.out_of.get(at[port][0]) for port in ports]
    controls = netlist.controls(names)
    if controls is None:
        return
    for port, name in zip(ports, names):
        if name is not None:
            netlist.reads[at[port][0]] -= 1
            at[port] = list(netlist.cells[name]["connections"]["DI"])
            netlist.reads[at[port][0]] = netlist.reads.get(at[port][0], 0) + 1
    _clock(cell, ("INPUTA", "INPUTB"), controls)


def _clock(cell: Cell, registers: Iterable[str], controls: Controls) -> None:
    """Let registers of a multiplier have a clock and an enable: its first pair of ports that has these or is free."""
    at, ports = cell["connections"], [[bit] for bit in controls]
    pair = next(k for k in range(4) if [at.get(f"CLK{k}"), at.get(f"CE{k}")] in ([None, None], ports))
    for port, bit in ((f"CLK{pair}", controls[0]), (f"CE{pair}", controls[1]), (f"RST{pair}", "0")):
        at[port] = [bit]
        cell["port_directions"][port] = "input"
    for register in registers:
        cell["parameters"] |= {
            f"REG_{register}_CLK": f"CLK{pair}",
            f"REG_{register}_CE": f"CE{pair}",
            f"REG_{register}_RST": f"RST{pair}",
        }


def _is_plain(cell: Cell) -> bool:
    """Whether a cell is a register without a reset, at the rising edge."""
    return (
        cell["type"] == _REGISTER
        and cell["connections"].get("LSR", ["0"]) == ["0"]
        and all(cell["parameters"].get(name, value) == value for name, value in _PLAIN.items())
        and cell["parameters"]["CEMUX"].strip() in ("1", "CE")
    )


def _controls(register: Cell) -> Controls:
    at = register["connections"]
    has_enable = register["parameters"]["CEMUX"].strip() == "CE"
    return at["CLK"][0], at["CE"][0] if has_enable else "1"
