"""The kernel with its AXI ports, driven by cocotb: `make cocotb`, or `python test_kernel.py verilator`.

Off-chip memory refuses a quarter of what it may refuse, and answers late. The outputs are those of expected.hex in all
bits that compared.hex has. Not part of `make test`, which needs no cocotb.
"""
# pyright: reportMissingImports=false

import os
import random
import sys
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

FOLDER = Path(__file__).resolve().parent
CONTROL, BASE, INDEX, WORD, ERRORS = 0x00, 0x10, 0x18, 0x1C, 0x48
MOST_CYCLES = 2_000_000


def lines(name: str) -> dict[int, bytes]:
    """The lines of a file of $readmemh by their numbers, the first byte first."""
    found, number = {}, 0
    for text in (FOLDER / name).read_text().split():
        if text.startswith("@"):
            number = int(text[1:], 16)
        else:
            found[number] = bytes.fromhex(text)[::-1]
            number += 1
    return found


class Memory:
    """Off-chip memory behind the port to memory, from address 0 on."""

    def __init__(self, dut, content: bytearray, seed: int):
        self.dut, self.content, self.random = dut, content, random.Random(seed)
        self.bytes = len(dut.m_axi_memory_rdata) // 8
        self.reads, self.writes, self.data, self.answers, self.cycle = [], [], [], [], 0
        self.unknown = set()

    async def run(self):
        """What is driven changes at the falling edge; both sides take at the rising one what they see then."""
        dut = self.dut
        while True:
            await FallingEdge(dut.ap_clk)
            for name in ("arready", "awready", "wready"):
                self.drive(name, self.random.random() < 0.75)
            # What was offered stays until it is taken.
            if self.reads and (self.get("rvalid") or self.due(self.reads[0])):
                _, address, left = self.reads[0]
                self.drive("rdata", int.from_bytes(self.content[address : address + self.bytes], "little"))
                self.drive("rlast", left == 1)
                self.drive("rvalid", 1)
            else:
                self.drive("rvalid", 0)
            self.drive("bvalid", bool(self.answers) and (self.get("bvalid") or self.due(self.answers[0])))
            await RisingEdge(dut.ap_clk)
            self.cycle += 1
            if dut.ap_rst_n.value == 1:
                self.take()

    def take(self):
        late = self.cycle + 16 + self.random.randrange(32)
        if self.meets("ar"):
            self.reads.append((late, self.get("araddr"), self.get("arlen") + 1))
        if self.meets("r"):
            due, address, left = self.reads.pop(0)
            if left > 1:
                self.reads.insert(0, (due, address + self.bytes, left - 1))
        if self.meets("b"):
            self.answers.pop(0)
        if self.meets("aw"):
            self.writes.append((self.get("awaddr"), self.get("awlen") + 1))
        if self.meets("w"):
            # Gaps between tensors may have unknown bits.
            bits = str(self.dut.m_axi_memory_wdata.value)
            parts = [bits[8 * k : 8 * k + 8] for k in reversed(range(self.bytes))]
            self.data.append(([int(part, 2) if set(part) <= {"0", "1"} else None for part in parts], self.get("wlast")))
        while self.data and self.writes:
            (value, last), (address, left) = self.data.pop(0), self.writes.pop(0)
            assert last == (left == 1), "wlast is not with the last transfer of a burst"
            assert address + self.bytes <= len(self.content), "a write beyond memory"
            self.content[address : address + self.bytes] = bytes(byte or 0 for byte in value)
            self.unknown.update(address + at for at, byte in enumerate(value) if byte is None)
            if left > 1:
                self.writes.insert(0, (address + self.bytes, left - 1))
            else:
                self.answers.append((late, 0, 0))

    def due(self, of) -> bool:
        return self.cycle >= of[0] and self.random.random() < 0.75

    def get(self, name: str) -> int:
        return int(getattr(self.dut, f"m_axi_memory_{name}").value)

    def drive(self, name: str, value: int):
        getattr(self.dut, f"m_axi_memory_{name}").value = int(value)

    def meets(self, channel: str) -> bool:
        return self.get(f"{channel}valid") == 1 and self.get(f"{channel}ready") == 1


class Host:
    """Registers over AXI4-Lite, one transfer at a time."""

    def __init__(self, dut):
        self.dut = dut

    def port(self, name: str):
        return getattr(self.dut, f"s_axi_control_{name}")

    async def offer(self, channels: list[str]):
        """Hold each channel valid until it is taken."""
        for channel in channels:
            self.port(f"{channel}valid").value = 1
        while channels:
            await RisingEdge(self.dut.ap_clk)
            taken = [channel for channel in channels if self.port(f"{channel}ready").value == 1]
            await FallingEdge(self.dut.ap_clk)
            for channel in taken:
                self.port(f"{channel}valid").value = 0
            channels = [channel for channel in channels if channel not in taken]

    async def answer(self, channel: str) -> int:
        """Take the answer of a channel, and say what data came with it."""
        ready, valid = self.port(f"{channel}ready"), self.port(f"{channel}valid")
        ready.value = 1
        while True:
            await RisingEdge(self.dut.ap_clk)
            if valid.value == 1:
                found = int(self.port("rdata").value) if channel == "r" else 0
                await FallingEdge(self.dut.ap_clk)
                ready.value = 0
                return found

    async def write(self, address: int, value: int):
        self.port("awaddr").value, self.port("wdata").value, self.port("wstrb").value = address, value, 15
        await self.offer(["aw", "w"])
        await self.answer("b")

    async def read(self, address: int) -> int:
        self.port("araddr").value = address
        await self.offer(["ar"])
        return await self.answer("r")


@cocotb.test()
async def outputs_are_those_of_the_golden_machine(dut):
    before = lines("far.hex")
    content = bytearray().join(before[number] for number in range(len(before)))
    for bus, names in (
        ("s_axi_control_", ("awvalid", "wvalid", "bready", "arvalid", "rready")),
        ("m_axi_memory_", ("arready", "rvalid", "rdata", "rlast", "rresp", "awready", "wready", "bvalid", "bresp")),
    ):
        for name in names:
            getattr(dut, bus + name).value = 0
    dut.ap_rst_n.value = 0
    cocotb.start_soon(Clock(dut.ap_clk, 10, "step").start())
    memory, host = Memory(dut, content, int(os.environ.get("SEED", "1"))), Host(dut)
    cocotb.start_soon(memory.run())
    for _ in range(4):
        await FallingEdge(dut.ap_clk)
    dut.ap_rst_n.value = 1
    for _ in range(100):
        await FallingEdge(dut.ap_clk)
    await host.write(BASE, 0)
    await host.write(BASE + 4, 0)
    await host.write(INDEX, 0)
    for word in (FOLDER / "program.hex").read_text().split():
        await host.write(WORD, int(word, 16))
    begin = memory.cycle
    await host.write(CONTROL, 1)
    while not await host.read(CONTROL) & 2:
        assert memory.cycle - begin < MOST_CYCLES, "the kernel is not done in time"
    assert await host.read(ERRORS) == 0
    expected, compared = lines("expected.hex"), lines("compared.hex")
    size = len(next(iter(before.values())))
    wrong = [
        number * size + at
        for number, mask in compared.items()
        for at in range(size)
        if mask[at] and (content[number * size + at] != expected[number][at] or number * size + at in memory.unknown)
    ]
    assert not wrong, f"{len(wrong)} bytes of the outputs differ, the first at {wrong[0]}"
    dut._log.info("passed: %d bytes of outputs", sum(byte != 0 for mask in compared.values() for byte in mask))


def main(simulator: str):
    from cocotb_tools.runner import get_runner

    sources = [FOLDER / name for name in (FOLDER / "files.f").read_text().split() if not name.startswith("+")]
    runner = get_runner(simulator)
    runner.build(
        sources=[*sources, FOLDER / "handshake.sv"],
        includes=[FOLDER],
        defines={"CHECKS": 1},
        hdl_toplevel="kernel",
        build_dir=FOLDER / "sim_build",
        build_args=["--assert", "-Wno-fatal", "-Wno-lint", "--x-initial", "unique"] if simulator == "verilator" else [],
    )
    results = runner.test(
        hdl_toplevel="kernel", test_module="test_kernel", build_dir=FOLDER / "sim_build", test_dir=FOLDER
    )
    import xml.etree.ElementTree as tree

    cases = tree.parse(results).getroot().iter("testcase")
    sys.exit(any(case.find("failure") is not None or case.find("error") is not None for case in cases))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "icarus")
