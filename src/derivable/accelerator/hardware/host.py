"""The host's side of a design: a driver in C++ against XRT, what it needs to know of the design, its program and data.

    driver.cpp   reads inputs, quantises them, runs the accelerator, writes outputs; the same for all designs
    design.h     where inputs and outputs are in the accelerator's memory, and what their integers mean
    program.bin  the program, 32-bit words
    memory.bin   off-chip memory before the first run, with all constants
    kernel.xml   what Vitis has to know of the kernel: its ports, and where its argument goes
    package.tcl  packages the SystemVerilog as such a kernel

The driver writes the program into the accelerator once, and then, for each run: puts the inputs of all passes that the
program does into memory, hands memory to the card, starts, waits, takes memory back, and reads the outputs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from derivable.accelerator.hardware import elaboration
from derivable.accelerator.hardware.elaboration import TOP
from derivable.core.diagnostics import DerivableError
from derivable.core.files import atomic_write, checked_path

if TYPE_CHECKING:
    from derivable.accelerator.lower.lower import Lowered
    from derivable.accelerator.machine.layouts import View
    from derivable.accelerator.numbers.formats import Format

FOLDER = Path(__file__).with_name("xrt")


def files(lowered: Lowered) -> dict[str, bytes]:
    """Content by name of file. The driver is compiled with the include folder of XRT, see driver.cpp."""
    return {
        "driver.cpp": (FOLDER / "driver.cpp").read_bytes(),
        "design.h": design(lowered).encode(),
        "program.bin": lowered.program.words.astype("<u4").tobytes(),
        "memory.bin": lowered.image.tobytes(),
        "kernel.xml": kernel(lowered.machine.line).encode(),
        "package.tcl": (FOLDER / "package.tcl").read_bytes(),
    }


def write(lowered: Lowered, directory: str | os.PathLike) -> Path:
    """Write all files into a folder, which is made if need be, each whole or not at all; the folder.

    Raises DerivableError where it cannot be made.
    """
    folder = checked_path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DerivableError(f"cannot make the folder: {error.strerror or error}", source=str(folder)) from None
    for name, content in files(lowered).items():
        with atomic_write(folder / name, "wb") as file:
            file.write(content)
    return folder


def design(lowered: Lowered) -> str:
    """The text of design.h. An output that is named twice is there twice, with a number behind its name."""
    shown, names = names_of_outputs(lowered), lowered.graph.outputs
    inputs, outputs = "", ""
    for of_pass in lowered.places:
        listed = [_tensor(name, of_pass.inputs[name], lowered.formats[name]) for name in lowered.inputs]
        written = [
            _tensor(title, view, lowered.formats[name]) for title, name, view in zip(shown, names, of_pass.outputs)
        ]
        inputs += f"    {{\n{''.join(listed)}    }},\n"
        outputs += f"    {{\n{''.join(written)}    }},\n"
    return f"""// Generated: {lowered.machine}.
#pragma once

constexpr char KERNEL[] = "{TOP}";
constexpr uint32_t IDENTITY = 0x{elaboration.kernel(lowered.machine).parameters["IDENTITY"]:08x};
constexpr size_t PROGRAM_WORDS = {lowered.program.words.size};
constexpr size_t MEMORY_BYTES = {len(lowered.image)};
constexpr size_t PASSES = {lowered.passes};

// Of each pass of a run:
// name, address, bytes of a number, scale, integer that is zero, least and largest integer, shape, strides
const std::vector<Tensor> INPUTS[PASSES] = {{
{inputs}}};
const std::vector<Tensor> OUTPUTS[PASSES] = {{
{outputs}}};
"""


def names_of_outputs(lowered: Lowered) -> list[str]:
    """Of each output in its order; one that is there twice has its number behind its name."""
    names = list(lowered.graph.outputs)
    return [name if names.count(name) == 1 else f"{name}_{number}" for number, name in enumerate(names)]


def _tensor(name: str, view: View, format: Format) -> str:
    least, most = format.clamp or (-format.most, format.most)
    # Hexadecimal floating-point numbers are exact.
    numbers = f"{view.address}, {view.size}, {format.scale.hex()}, {format.zero}, {least}, {most}"
    shape, strides = (", ".join(map(str, part)) for part in (view.shape, view.strides))
    return f'        {{"{name}", {numbers}, {{{shape}}}, {{{strides}}}}},  // {format}\n'


def kernel(line: int) -> str:
    """The text of kernel.xml: one pointer as argument, and the port to memory, whose width is PORT in kernel.sv."""
    port = min(line, 64)
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<root versionMajor="1" versionMinor="6">
  <kernel name="{TOP}" language="ip_c" vlnv="derivable:kernel:{TOP}:1.0" attributes="" hwControlProtocol="ap_ctrl_hs"
          preferredWorkGroupSizeMultiple="0" workGroupSize="1" interrupt="false">
    <ports>
      <port name="s_axi_control" mode="slave" range="0x1000" dataWidth="32" portType="addressable" base="0x0"/>
      <port name="m_axi_memory" mode="master" range="0xFFFFFFFFFFFFFFFF" dataWidth="{8 * port}"
            portType="addressable" base="0x0"/>
    </ports>
    <args>
      <arg name="memory" addressQualifier="1" id="0" port="m_axi_memory" size="0x8" offset="0x10" hostOffset="0x0"
           hostSize="0x8" type="void*"/>
    </args>
  </kernel>
</root>
"""
