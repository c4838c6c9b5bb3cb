"""Play a module: values of its inputs cycle by cycle, through one build for all cases, give those of its outputs.

A generated wrapper has all inputs in one vector and all outputs in another, so that one harness serves all modules.
Inputs of a cycle are there before its edge; what is read is what stands at the outputs just before that edge.
"""

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from derivable.accelerator.hardware import elaboration, verilator

HARNESS = """
#include "Vplayer.h"
#include "verilated.h"
#include <cstring>
extern "C" void play(const char* stimulus, long wide_in, char* response, long wide_out, long cycles) {
  VerilatedContext context;
  context.randReset(0);  // a stimulus says all from the first cycle on
  Vplayer top(&context);
  for (long cycle = 0; cycle < cycles; ++cycle) {
    std::memcpy(&top.stimulus, stimulus + cycle * wide_in, wide_in);
    top.clk = 0;
    top.eval();
    std::memcpy(response + cycle * wide_out, &top.response, wide_out);
    top.clk = 1;
    top.eval();
  }
}
"""


class Player:
    """inputs and outputs: bits of each port, by name; `clk` is added."""

    def __init__(self, module, parameters, inputs: Mapping[str, int], outputs: Mapping[str, int], extra=None):
        self.inputs, self.outputs = dict(inputs), dict(outputs)
        self.in_bits, self.out_bits = (8 * -(-sum(ports.values()) // 8) for ports in (inputs, outputs))
        ports, declared, at = [".clk(clk)"], "", 0
        for name, bits in inputs.items():
            ports.append(f".{name}(stimulus[{at}+:{bits}])")
            at += bits
        at = 0
        for name, bits in outputs.items():
            ports.append(f".{name}(response[{at}+:{bits}])")
            at += bits
        if at < self.out_bits:
            declared = f"  assign response[{self.out_bits - 1}:{at}] = 0;\n"
        values = ", ".join(f".{name}({value})" for name, value in parameters.items())
        wrapper = (
            f"module player (\n  input wire clk,\n  input wire [{self.in_bits - 1}:0] stimulus,\n"
            f"  output wire [{self.out_bits - 1}:0] response\n);\n{declared}"
            f"  {module} {f'#({values}) ' if values else ''}dut ({', '.join(ports)});\nendmodule\n"
        )
        self.hardware = elaboration.hardware("player", extra={"player.sv": wrapper, **(extra or {})})

    def play(self, cycles: int, **values: np.ndarray) -> dict[str, np.ndarray]:
        """values  of inputs: [cycle] integers, or [cycle, byte] uint8, the lowest byte first; others are zero"""
        stimulus = self._packed(cycles, values)
        response = np.zeros((cycles, _stored(self.out_bits)), np.uint8)
        library = ctypes.CDLL(str(verilator.build(self.hardware, {"player_harness.cpp": HARNESS})))
        wide = ctypes.c_long(stimulus.shape[1]), ctypes.c_long(response.shape[1])
        library.play(
            ctypes.c_void_p(stimulus.ctypes.data), wide[0], ctypes.c_void_p(response.ctypes.data), wide[1],
            ctypes.c_long(cycles),
        )  # fmt: skip
        return self._unpacked(response)

    def play_icarus(self, folder: Path, cycles: int, **values: np.ndarray) -> dict[str, np.ndarray]:
        """The same through Icarus; what is unknown (x) is read as 0xAA."""
        stimulus = self._packed(cycles, values)
        lines = [row[: self.in_bits // 8][::-1].tobytes().hex() for row in stimulus]
        (folder / "stimulus.hex").write_text("\n".join(lines))
        bench = f"""module bench;
  reg clk = 0;
  reg [{self.in_bits - 1}:0] all [0:{cycles - 1}];
  reg [{self.in_bits - 1}:0] stimulus;
  wire [{self.out_bits - 1}:0] response;
  player player (.clk, .stimulus, .response);
  integer i, file;
  initial begin
    $readmemh("stimulus.hex", all);
    file = $fopen("response.hex", "w");
    for (i = 0; i < {cycles}; i = i + 1) begin
      stimulus = all[i];
      #1 $fdisplay(file, "%h", response);
      clk = 1;
      #1 clk = 0;
    end
    $finish;
  end
endmodule
"""
        for name, text in {**self.hardware.files, "bench.sv": bench}.items():
            (folder / name).write_text(text)
        command = ["iverilog", "-g2012", "-o", "bench.vvp", "-s", "bench", *self.hardware.sources, "bench.sv"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        subprocess.run(["vvp", "-n", "bench.vvp"], cwd=folder, check=True, capture_output=True, timeout=60)
        rows = (folder / "response.hex").read_text().replace("x", "a").split()
        found = np.array([list(bytes.fromhex(row)[::-1]) for row in rows], np.uint8)
        return self._unpacked(np.pad(found, ((0, 0), (0, _stored(self.out_bits) - found.shape[1]))))

    def _packed(self, cycles: int, values: Mapping[str, np.ndarray]) -> np.ndarray:
        bits = np.zeros((cycles, 8 * _stored(self.in_bits)), np.uint8)
        at = 0
        for name, width in self.inputs.items():
            value = np.asarray(values.pop(name, 0) if isinstance(values, dict) else 0)
            if value.ndim < 2:
                value = np.broadcast_to(value.astype("<i8"), (cycles,)).copy().view(np.uint8).reshape(cycles, 8)
            known = np.unpackbits(np.ascontiguousarray(value), axis=1, bitorder="little")[:, :width]
            bits[:, at : at + known.shape[1]] = known
            at += width
        assert not values, f"no input {list(values)}"
        return np.packbits(bits, axis=1, bitorder="little")

    def _unpacked(self, response: np.ndarray) -> dict[str, np.ndarray]:
        bits = np.unpackbits(response, axis=1, bitorder="little")
        found, at = {}, 0
        for name, width in self.outputs.items():
            found[name] = np.packbits(bits[:, at : at + width], axis=1, bitorder="little")
            at += width
        return found


def _stored(bits: int) -> int:
    """Bytes of a vector in Verilator's memory."""
    size = -(-bits // 8)
    return next((known for known in (1, 2, 4, 8) if size <= known), 4 * -(-size // 4))
