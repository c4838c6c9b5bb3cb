"""Registers that go into multipliers and blocks of memory: netlists before and after, cycle by cycle."""

import copy

import numpy as np
import pytest

from derivable.accelerator.hardware.absorption import absorb

CLOCK, ENABLE, OTHER = 2, 3, 4  # bits of the netlists below


class Netlist:
    """A module as Yosys writes it, made cell by cell."""

    def __init__(self):
        self.bits = OTHER
        self.module = {"ports": {}, "cells": {}}

    def fresh(self, count=1):
        self.bits += count
        return list(range(self.bits - count + 1, self.bits + 1))

    def port(self, name, direction, bits):
        self.module["ports"][name] = {"direction": direction, "bits": bits}
        return bits

    def cell(self, name, type, parameters, inputs, outputs):
        self.module["cells"][name] = {
            "type": type,
            "parameters": parameters,
            "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
            "connections": {port: [bit] for port, bit in (inputs | outputs).items()},
        }

    def registers(self, name, bits, *, enable: int | None = ENABLE, reset="0"):
        """A register for each bit; the bits that they give."""
        outputs = self.fresh(len(bits))
        parameters = {"CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET", "GSR": "DISABLED"}
        parameters["CEMUX"] = "1 " if enable is None else "CE"
        for k, (bit, output) in enumerate(zip(bits, outputs)):
            inputs = {"CLK": CLOCK, "DI": bit, "LSR": reset} | ({} if enable is None else {"CE": enable})
            self.cell(f"{name}{k}", "TRELLIS_FF", parameters, inputs, {"Q": output})
        return outputs

    def multiplier(self, a, b):
        """A signed product of numbers of few bits."""
        product = self.fresh(36)
        inputs = {f"{half}{k}": bits[min(k, len(bits) - 1)] for half, bits in (("A", a), ("B", b)) for k in range(18)}
        self.cell("times", "MULT18X18D", {}, inputs, {f"P{k}": bit for k, bit in enumerate(product)})
        return product


def run(module, cycles):
    """The outputs in each cycle, from inputs {port: number} in each; registers, those of multipliers too, begin as
    zeros."""
    cells, state, results = module["cells"].values(), {}, []
    for inputs in cycles:
        values = {"0": 0, "1": 1, "x": 0}
        for name, number in inputs.items():
            values |= {bit: number >> k & 1 for k, bit in enumerate(module["ports"][name]["bits"])}
        held = {}
        for cell in cells:
            if cell["type"] == "TRELLIS_FF":
                output = cell["connections"]["Q"][0]
                values[output] = state.get(output, 0)
        for cell in cells:
            if cell["type"] != "MULT18X18D":
                continue
            at, parameters = {port: bits[0] for port, bits in cell["connections"].items()}, cell["parameters"]
            now = {half: [values[at[f"{half}{k}"]] for k in range(18)] for half in "AB"}
            for half in "AB":
                if f"REG_INPUT{half}_CLK" in parameters:
                    assert at[parameters[f"REG_INPUT{half}_CLK"]] == CLOCK
                    if values[at[parameters[f"REG_INPUT{half}_CE"]]]:
                        held[id(cell), half] = now[half]
                    now[half] = state.get((id(cell), half), [0] * 18)
            a, b = (sum(bit << k for k, bit in enumerate(now[half])) for half in "AB")
            product = (a - (a >> 17 << 18)) * (b - (b >> 17 << 18))
            if "REG_OUTPUT_CLK" in parameters:
                if values[at[parameters["REG_OUTPUT_CE"]]]:
                    held[id(cell), "P"] = product
                product = state.get((id(cell), "P"), 0)
            values |= {at[f"P{k}"]: product >> k & 1 for k in range(36)}
        for cell in cells:
            at = {port: bits[0] for port, bits in cell["connections"].items()}
            if cell["type"] == "TRELLIS_FF" and values[at.get("CE", "1")]:
                held[at["Q"]] = 0 if values[at["LSR"]] else values[at["DI"]]
        outputs = [port["bits"] for port in module["ports"].values() if port["direction"] == "output"]
        results.append([[values[bit] for bit in bits] for bits in outputs])
        state |= held
    return results


def product(*, read_before=False, **registers):
    """A product of two numbers of eight bits between registers; a sum of it is taken by a register behind it."""
    net = Netlist()
    net.port("enable", "input", [ENABLE])
    net.port("other", "input", [OTHER])
    a, b = (net.port(name, "input", net.fresh(8)) for name in "ab")
    before = net.registers("a", a, **registers), net.registers("b", b, **registers)
    times = net.multiplier(*before)
    net.port("product", "output", net.registers("p", times[:16], **registers))
    if read_before:
        net.port("early", "output", [times[3], before[0][2]])
    return net.module


def inputs(rng, cycles=60):
    numbers = rng.integers(0, 256, (cycles, 2)).tolist()
    return [{"a": a, "b": b, "enable": int(rng.integers(4) > 0), "other": int(rng.integers(4) > 2)} for a, b in numbers]


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        ({}, 32),  # 8 and 8 of the operands, 16 of the product
        ({"enable": None}, 32),
        ({"reset": OTHER}, 0),
        # The register of the operand is read by others and stays; so does that of the product, which is no register.
        ({"read_before": True}, 15),
    ],
)
def test_a_product_is_the_same_in_every_cycle(options, gone):
    module = product(**options)
    before = copy.deepcopy(module)
    assert absorb(module) == gone
    cycles = inputs(np.random.default_rng(0))
    expected = run(before, cycles)
    assert run(module, cycles) == expected
    # Resets in a quarter of the cycles leave 18 different outputs; without them there are 42 at least.
    assert len({str(outputs) for outputs in expected}) > 15


def test_operands_with_enables_of_their_own_stay():
    net = Netlist()
    net.port("enable", "input", [ENABLE])
    net.port("other", "input", [OTHER])
    a, b = (net.port(name, "input", net.fresh(8)) for name in "ab")
    times = net.multiplier(net.registers("a", a), net.registers("b", b, enable=OTHER))
    net.port("product", "output", net.registers("p", times[:16], enable=None))
    before = copy.deepcopy(net.module)
    assert absorb(net.module) == 16
    cycles = inputs(np.random.default_rng(1))
    assert run(net.module, cycles) == run(before, cycles)


def memory(width, enable, registers):
    """A block of memory whose second port is read, with registers behind it."""
    net = Netlist()
    parameters = {f"{name}_{half}": value for half in "AB" for name, value in (("REGMODE", "NOREG"),)}
    parameters |= {f"DATA_WIDTH_{half}": f"{width:032b}" for half in "AB"}
    halves = "AB" if width == 36 else "B"
    outputs = {f"DO{half}{k}": net.fresh()[0] for half in "AB" for k in range(18)}
    read = [bit for port, bit in outputs.items() if port[2] in halves]
    plain = {"CLKA": CLOCK, "CLKB": CLOCK, "CEA": "1", "CEB": enable, "OCEA": "0", "OCEB": "1"}
    net.cell("memory", "DP16KD", parameters, plain, outputs)
    net.port("word", "output", net.registers("word", read, enable=registers))
    return net.module


@pytest.mark.parametrize(
    ("width", "enable", "registers", "gone", "modes", "enables"),
    [
        (18, "1", None, 18, ("NOREG", "OUTREG"), ("0", "1")),
        (36, "1", None, 36, ("OUTREG", "OUTREG"), ("1", "1")),
        (36, "1", ENABLE, 36, ("OUTREG", "OUTREG"), (ENABLE, ENABLE)),
        (36, ENABLE, ENABLE, 36, ("OUTREG", "OUTREG"), (ENABLE, ENABLE)),
        (18, ENABLE, None, 0, ("NOREG", "NOREG"), ("0", "1")),
    ],
)
def test_memories(width, enable, registers, gone, modes, enables):
    module = memory(width, enable, registers)
    words = module["ports"]["word"]["bits"]
    assert absorb(module) == gone
    cell = module["cells"]["memory"]
    at = cell["connections"]
    assert tuple(cell["parameters"][f"REGMODE_{half}"] for half in "AB") == modes
    assert (*at["OCEA"], *at["OCEB"]) == enables
    if gone:
        assert [at[f"DO{half}{k}"][0] for half in "AB"[-gone // 18 :] for k in range(18)] == words
