"""What a design takes of a device: an analytic estimate, and whether it fits.

The estimate is the sum of elements, of adders and skew registers around them, of SIMD lanes with their share of the
paths to the cache, of the controller with all that is there once, and of blocks of memory. DSP slices are exact.
Against yosys 0.23 (`xcup`, `benchmarks/yosys.py`), look-up tables and flip-flops of arrays of 4 x 4 x 2 to 32 x 16 x 4
are within 1 %, and constants of whole accelerators come from one of 8 x 8 x 2 (docs/benchmarks/accelerator.md). A
vendor's tool packs registers and adders into the slices and needs fewer.

Printed form:

    DSP          512    4.2%
    LUT        59616    3.5%
    FF         86048    2.5%
    BRAM         106    2.0%
    URAM           1    0.1%
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from derivable.accelerator.explore.schedule import Workload
from derivable.accelerator.explore.sizing import BRAM_SHAPES, Memories, blocks, memories
from derivable.accelerator.machine.instructions import WORDS, Machine
from derivable.accelerator.numbers.precision import PRECISIONS
from derivable.accelerator.operators.runtime import ceil_div
from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError, LimitError, ParseError
from derivable.core.registry import Registry

KINDS = ("dsp", "lut", "ff", "bram", "uram")


@dataclass(frozen=True)
class Target:
    """What open place and route needs to know of a device: the family of nextpnr, "ecp5" or "gowin", the part as the
    tool names it, and of ecp5 the package and the speed grade, of gowin the series and three pins, one of them a
    clock's."""

    family: str
    part: str
    package: str = ""
    speed: str = ""
    series: str = ""
    clock_pin: str = ""
    input_pin: str = ""
    output_pin: str = ""


# What each family of `Target` needs.
_TARGETS = {
    "ecp5": ("family", "part", "package", "speed"),
    "gowin": ("family", "part", "series", "clock_pin", "input_pin", "output_pin"),
}


@dataclass(frozen=True)
class Device:
    """What a device has: slices, look-up tables of 6 inputs, flip-flops, blocks of 18 Kb and of 288 Kb; `bandwidth` in
    bytes a second to memory outside, `clock` in Hz, which is assumed; `place` where open tools place designs on it. The
    files in `devices/` name the data sheets."""

    name: str
    title: str
    part: str
    dsp: int
    lut: int
    ff: int
    bram: int
    uram: int
    bandwidth: float
    clock: float
    place: Target | None = None


def read_device(path: Path) -> Device:
    """A device from its TOML file, named as the file. Raises ParseError and DomainError for what is wrong in it."""
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise DomainError(f"the device file {path} cannot be read: {error.strerror}") from error
    # Bytes that are no text and numbers of thousands of digits are value errors; thousands of brackets are the other.
    except (ValueError, RecursionError) as error:
        raise ParseError(f"this is no TOML: {error}", source=str(path)) from error
    target = found.pop("place", None)
    names = [field.name for field in fields(Device) if field.name not in ("name", "place")]
    wrong = sorted(set(names) ^ set(found))
    if wrong:
        what = "does not name" if wrong[0] in names else "names"
        raise DomainError(f"the device file {path} {what} `{wrong[0]}`", hint=f"a device has {', '.join(names)}")
    for name in KINDS:
        integer(found[name], f"`{name}` in {path}", 0)
    for name in ("bandwidth", "clock"):
        if isinstance(found[name], bool) or not isinstance(found[name], (int, float)) or not 0 < found[name] < math.inf:
            raise DomainError(f"`{name}` in {path} is {found[name]!r}, expected a positive number")
    return Device(path.stem, **found, place=None if target is None else _target(path, target))


def _target(path: Path, found: Any) -> Target:
    """The table `[place]` of a device's file, whose values become options of a tool."""
    if not isinstance(found, dict) or found.get("family") not in _TARGETS:
        raise DomainError(f"`place` in {path} names no family", hint=f"families are {', '.join(_TARGETS)}")
    names = _TARGETS[found["family"]]
    if set(found) != set(names):
        raise DomainError(f"`place` in {path} has {', '.join(found)}", hint=f"it has {', '.join(names)}")
    for name, value in found.items():
        if not isinstance(value, str) or not re.fullmatch(r"\w[\w./-]*", value):
            raise DomainError(f"`{name}` of `place` in {path} is {value!r}, expected a name")
    return Target(**found)


DEVICES: Registry[Device] = Registry(
    "device",
    {path.stem: read_device(path) for path in sorted((Path(__file__).parent / "devices").glob("*.toml"))},
    {"ecp5": "ecp5-85k", "gowin": "gw2a-18"},
    more="or give the path of a TOML file like those",
)


def device(name: str | Path) -> Device:
    """A device by its name, or by the path of its file. Raises DomainError for an unknown name."""
    if isinstance(name, Path) or (isinstance(name, str) and name.endswith(".toml")):
        return read_device(Path(name))
    return DEVICES[name]


@dataclass(frozen=True)
class Resources:
    """DSP slices, look-up tables, flip-flops, blocks of 18 Kb (BRAM) and of 288 Kb (URAM)."""

    dsp: int = 0
    lut: int = 0
    ff: int = 0
    bram: int = 0
    uram: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(*(getattr(self, kind) + getattr(other, kind) for kind in KINDS))

    def __mul__(self, times: int) -> Resources:
        return Resources(*(getattr(self, kind) * times for kind in KINDS))

    def shares(self, of: Device) -> dict[str, float]:
        """The part of the device that each kind takes; above 1 it does not fit."""
        return {kind: share(getattr(self, kind), getattr(of, kind)) for kind in KINDS}

    def fit(self, of: Device) -> bool:
        return all(part <= 1 for part in self.shares(of).values())

    def table(self, of: Device) -> str:
        parts = self.shares(of)
        return "\n".join(f"{kind.upper():6} {getattr(self, kind):>9}  {parts[kind]:>6.1%}" for kind in KINDS)


def share(used: int, there: int) -> float:
    if there:
        return used / there
    return float("inf") if used else 0.0


def element(neural: str, symbolic: str) -> Resources:
    """A processing element: one DSP slice multiplies, also two pairs of INT4, each in its own bits of the product.

    Flip-flops are those of the stationary, streaming and passing value (8 bits each), of the operands (13 each), of
    the product, twice (25 of its bits are used), of what is taken of it and of the sum (32 each). Look-up tables are
    what yosys 0.23 makes of the generated element under `xcup`: 69 for the operands and both forms of the product, 41
    for the sum and what goes into it. Elements of floating point are not generated; their sums would be aligned, added
    and normalised, about two shifters of the width of a sum.
    """
    formats = PRECISIONS[neural], PRECISIONS[symbolic]
    wide = max(item.bits * item.products for item in formats)
    shifts = 10 * 32 if any(item.is_float for item in formats) else 0
    return Resources(dsp=1, lut=69 + 41 + shifts, ff=3 * wide + 2 * 13 + 2 * 25 + 2 * 32)


def surroundings(height: int, width: int, sub_arrays: int, bits: int = 32) -> Resources:
    """What stands around the elements of `sub_arrays` sub-arrays: the tree that adds their partial sums in each of
    `width` columns, where one of each two takes a look-up table to leave it out, and what skews their inputs and sums:
    lanes that are late by three cycles and more are shift registers, a look-up table for each bit and 16 cycles."""
    added = Resources(lut=bits, ff=bits) * ((sub_arrays - 1) * width)
    left_out = Resources(lut=bits) * (sub_arrays // 2 * width)
    return added + left_out + _skew(height, 8) * sub_arrays + _skew(width, bits)


def _skew(lanes: int, bits: int) -> Resources:
    """Lane i is i cycles late; yosys makes flip-flops of one and two."""
    tables = sum(ceil_div(late, 32) for late in range(3, lanes))
    return Resources(lut=tables * bits, ff=(min(lanes - 1, 1) + 2 * (lanes > 2)) * bits)


def lane() -> Resources:
    """A lane of the SIMD unit, as yosys 0.23 makes it under `xcup`: 6 DSP slices, 1560 LUTs and 849 flip-flops for its
    arithmetic (32 x 32 bits; the tables of exp2 and log2 and their interpolation), 7, 583 and 635 for the multiplier of
    64 x 32 bits, shift and clamp of its result, and 1426 and 504 for its four bytes of each line: what turns them on
    their way from and to the cache, unpacks operands, sums across lanes and packs results."""
    return Resources(dsp=6 + 7, lut=1560 + 583 + 1426, ff=849 + 635 + 504)


def control(width: int, sub_arrays: int) -> Resources:
    """What there is once, controller, queues, sequencers, loops and movers, and for each column of each sub-array its
    choice of addresses and the adder of its bank of C, as yosys 0.23 makes it under `xcup`."""
    return Resources(lut=5300, ff=3060) + Resources(lut=102, ff=146) * (width * sub_arrays)


def estimate(
    array: tuple[int, int, int],
    *,
    simd: int = 0,
    stores: Memories | None = None,
    neural: str = "int8",
    symbolic: str = "int8",
) -> Resources:
    """What a design takes, by counting.

    array   height, width and number of sub-arrays; `simd` lanes of the SIMD unit, 0 for the array alone
    stores  its memories
    """
    height, width, sub_arrays = (integer(size, "a size of the array", 1) for size in array)
    total = element(neural, symbolic) * (height * width * sub_arrays)
    total += surroundings(height, width, sub_arrays)
    if integer(simd, "simd", 0):
        total += lane() * simd + control(width, sub_arrays)
    if stores is not None:
        total += Resources(bram=stores.bram, uram=stores.uram)
    return total


def generated(of: Machine, ports: int = 2) -> Resources:
    """What the generated accelerator of a machine takes: the estimate of its array and lanes, and each of its memories
    in blocks, as yosys 0.23 places them. X has a bank for each byte of a line, and like C a copy for each of two
    readers; what is short (K, P, queues) is in look-up tables. With more `ports`, X would have a copy for each."""
    sizes = [  # how many, words, bits of a word
        (of.sub_arrays, of.a, 8 * of.width),
        (of.sub_arrays, of.b, 8 * of.height),
        (2 * of.sub_arrays, of.c, 32 * of.width),
        (ports * of.line, of.x // of.line, 8),
        (WORDS, of.program, 32),
    ]
    bram = sum(count * blocks(words * bits // 8, bits, BRAM_SHAPES) for count, words, bits in sizes)
    return estimate((of.height, of.width, of.sub_arrays), simd=of.lanes) + Resources(bram=bram)


def fit_memories(workload: Workload, array: tuple[int, int, int], of: Device, **formats: Any) -> Memories:
    """The memories of a workload in the blocks of a device: whole nodes if they fit, else the largest power of two of
    bytes for each memory with which all fit.

    formats  `neural`, `symbolic` and `inputs` of `sizing.memories`

    Raises LimitError if even the smallest memories are too many.
    """
    found = memories(workload, array, **formats)
    largest = max(found.a1.bytes, found.a2.bytes, found.b.bytes, found.c.bytes)
    for limit in (None, *(2**e for e in range(largest.bit_length() - 1, 9, -1))):
        found = memories(workload, array, limit=limit, **formats)
        if found.bram <= of.bram and found.uram <= of.uram:
            return found
    raise LimitError(
        f"the memories of {array[2]} sub-arrays of {array[0]} x {array[1]} need at least {found.bram} BRAM and "
        f"{found.uram} URAM; {of.name} has {of.bram} and {of.uram}",
        hint="give a smaller pes= or a larger device=",
    )


def check_fit(
    needed: Resources,
    of: Device,
    *,
    smaller: Callable[[int], Resources] | None = None,
    most: int = 0,
    sides: tuple[int, int] | None = None,
) -> None:
    """Raises LimitError if a design does not fit, with each resource that lacks, by how much, and what would fit.

    smaller  what a design with fewer sub-arrays takes; of those with 1 to `most` sub-arrays the largest that fits is
             named
    sides    height and width of a sub-array, by which the arguments of `design` for that one are named, too
    """
    pairs = [(kind.upper(), getattr(needed, kind), getattr(of, kind)) for kind in KINDS]
    lacking = [f"{used} {kind} of {there}, {used - there} too many" for kind, used, there in pairs if used > there]
    if not lacking:
        return
    hint = "give a smaller pes=, a lower precision= or a larger device="
    if smaller is not None:
        count = largest_fit(smaller, of, most)
        if count:
            hint = f"{count} sub-array{'s' if count > 1 else ''} of this size would fit"
            if sides is not None:
                height, width = sides
                hint += f": give pes={count * height * width}, heights=[{height}] and widths=[{width}]"
    raise LimitError(f"the design needs more than {of.name} has: {'; '.join(lacking)}", hint=hint)


def largest_fit(build: Callable[[int], Resources], of: Device, most: int) -> int:
    """The largest number of sub-arrays up to `most` with which a design fits, 0 if none does."""
    for count in range(most, 0, -1):
        if build(count).fit(of):
            return count
    return 0
