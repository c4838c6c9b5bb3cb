"""A design on the hardware that is generated for it: the machine, the program, and what a run of it gives.

The machine has the array, the lanes and the memories of the design, in the powers of two that the hardware has. A
cache that is too small for the program is doubled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.accelerator.hardware import batch, elaboration, kit, placement
from derivable.accelerator.hardware.batch import Batch
from derivable.accelerator.hardware.placement import Placement
from derivable.accelerator.hardware.resources import Device
from derivable.accelerator.hardware.simulation import Backend, OffChip, Simulation
from derivable.accelerator.hardware.simulation import simulate as run
from derivable.accelerator.lower.lower import Lowered, lower
from derivable.accelerator.machine.instructions import COUNT_BITS, X_BITS, Machine
from derivable.accelerator.numbers.layers import PARTS
from derivable.accelerator.operators.evaluation import in_passes
from derivable.accelerator.operators.runtime import Layer, Vectors, ceil_div
from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError, LimitError, UnsupportedError

if TYPE_CHECKING:
    from derivable.accelerator.designs.designs import Design

MOST_LINE, LEAST_LINE, LEAST_CACHE = 512, 32, 1 << 16
LEAST_WORDS, MOST_WORDS = 1024, 1 << COUNT_BITS
MOST_IN_FLIGHT = 4  # passes
MOST_PROGRAM = 1 << 20


def place(made: Design, on: Device, module: str, seed: int, time_limit: float) -> Placement:
    """A module of the hardware of a design on a device; see `Design.place`."""
    values = elaboration.parameters_of(module, made.lowered.machine)
    return placement.place(elaboration.hardware(module, values), on, seed=seed, time_limit=time_limit)


def machine(made: Design) -> Machine:
    """The machine of a design, with memory for the largest program; `deploy` has one that is no larger than needed.

    Raises DomainError for an array that the hardware has no registers for.
    """
    height, width, banks, memories = made.height, made.width, made.sub_arrays, made.memories
    lanes = max(_power(made.lanes), width)
    line = min(max(LEAST_LINE, height, width, 4 * lanes), MOST_LINE)
    lanes = max(min(lanes, line // 4), width)

    def words(size: int, bytes_of_word: int) -> int:
        return min(max(_power(ceil_div(size, banks * bytes_of_word)), LEAST_WORDS), MOST_WORDS)

    return Machine(
        height=height,
        width=width,
        sub_arrays=banks,
        lanes=lanes,
        line=line,
        a=words(memories.a1.bytes * memories.a1.copies + memories.a2.bytes * memories.a2.copies, width),
        b=words(memories.b.bytes * memories.b.copies, height),
        c=words(memories.c.bytes * memories.c.copies, 4 * width),
        x=min(max(_power(memories.cache.bytes), LEAST_CACHE), 1 << X_BITS),
        program=MOST_PROGRAM,
    )


def _power(number: int) -> int:
    """The least power of two that is not below."""
    return 1 << max(number - 1, 0).bit_length()


def _round(number: int) -> int:
    """The least number that is not below, of those that three binary digits begin and zeros end."""
    step = max(_power(number) // 8, 1)
    return ceil_div(number, step) * step


def deploy(made: Design, passes: int = 1) -> Lowered:
    """The program of a design, for the smallest machine of its kind that holds it.

    passes  of the model that it does, as many of them together as the cache of the design has room for

    Raises UnsupportedError for an operator or a format that the hardware has not, LimitError where memory does not
    suffice, both with the line of the model.
    """
    for of, name in made.precision.items():
        if name not in ("int8", "int4"):
            raise UnsupportedError(
                f"the generated hardware has no {name}, which is the format of "
                + (f"the {of} part" if of in PARTS else f"%{of}"),
                hint='design with precision="int8", "int4" or "int8/int4"',
            )
    if made.quantised is None:
        raise DomainError("the design was not calibrated", hint="`dv.accelerator.design` calibrates with its inputs")
    wanted = machine(made)
    counts = _counts(made)
    in_flight = min(integer(passes, "passes", 1), MOST_IN_FLIGHT)
    while True:
        try:
            found = lower(made.quantised, wanted, counts=counts, passes=passes, in_flight=in_flight)
            break
        except LimitError:
            if in_flight > 1:
                in_flight -= 1
            elif wanted.x >= 1 << X_BITS:
                raise
            else:
                wanted = replace(wanted, x=2 * wanted.x)
    return replace(found, machine=_smallest(wanted, found.reach, len(found.program)))


def _smallest(of: Machine, reach: Mapping[str, int], length: int) -> Machine:
    """The machine with no more memory than a program of `length` instructions touches, see `Lowered`; in few sizes, so
    that programs share their simulators."""
    words = {name.lower(): max(_round(reach[name]), LEAST_WORDS) for name in "ABC"}
    words = {name: min(size, getattr(of, name)) for name, size in words.items()}
    x = min(ceil_div(reach["X"], LEAST_CACHE) * LEAST_CACHE, of.x)
    return replace(of, **words, x=x, program=_power(length))


def _counts(made: Design) -> dict[str, int]:
    """How many sub-arrays the schedule gives each operator of the array, as it is after phase II."""
    assert made.quantised is not None
    nodes = ((operator.name, made.flow.lowered_in(operator.name)) for operator in made.quantised.graph)
    return {name: made.placed[node].sub_arrays for name, node in nodes if node in made.placed}


def simulate(made: Design, inputs: Any, backend: Backend = "verilator", off_chip: OffChip | None = None) -> Simulation:
    """Run a design on inputs; see `Design.simulate`."""
    given, passes = arrays(made, inputs)
    return run(made.lower(passes), given, backend, off_chip)


def run_batch(made: Design, inputs: Any, backend: Backend = "verilator", off_chip: OffChip | None = None) -> Batch:
    """Run a design on many samples, a pass at a time; see `Design.run`."""
    by_name, _ = arrays(made, inputs)
    return batch.run(made.lowered, by_name, backend, off_chip)


def write_kit(made: Design, directory: str | Path, inputs: Any) -> Path:
    """Write the kit of a design for inputs; see `Design.write_kit`."""
    given, passes = arrays(made, inputs)
    return kit.write(made.lower(passes), directory, given)


def arrays(made: Design, inputs: Any) -> tuple[dict[str, np.ndarray], int]:
    """Inputs as arrays by name, and of how many passes they are.

    inputs  by name, in their order, or one by itself; tensors of torch too, and in dictionaries and tuples as the model
            takes them

    Raises ShapeError for inputs that do not fit, or for more or fewer than there are, and DomainError for what holds
    no real and finite numbers.
    """
    if isinstance(inputs, Mapping):
        found: Any = {}
        for name, value in inputs.items():
            leaves = list(_leaves(value))
            names = [name] if leaves and leaves[0] is value else [f"{name}_{k}" for k in range(len(leaves))]
            found |= {each: _array(leaf) for each, leaf in zip(names, leaves)}
    else:
        found = [_array(value) for value in (_leaves(inputs) if isinstance(inputs, (tuple, list)) else (inputs,))]
    passes = len(in_passes(made.graph, found))
    found = found if isinstance(found, dict) else dict(zip(made.graph.inputs, found))
    for name, array in found.items():
        if not np.isfinite(array).all():
            at = np.argwhere(~np.isfinite(array))[0].tolist()
            raise DomainError(
                f"the input %{name} is {array[tuple(at)]} at {at}, expected finite numbers",
                hint="fixed point has no infinities; let masks be -1000 in the place of -inf",
            )
    return found, passes


def _leaves(value: Any) -> Iterator[Any]:
    """What is in nested dictionaries, tuples and lists; numbers and texts are no inputs."""
    if isinstance(value, (Mapping, tuple, list)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(part)
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        yield value


def _array(value: Any) -> np.ndarray:
    kind = type(value).__name__
    if hasattr(value, "detach"):
        try:
            value = value.detach().cpu()
            value = (value.double() if value.is_floating_point() else value).numpy()  # bfloat16 is no type of NumPy
        except (TypeError, NotImplementedError, RuntimeError) as error:
            # Sparse and nested tensors, and those without numbers.
            raise DomainError(
                f"an input is no dense tensor: {error}", hint="give a dense tensor with numbers"
            ) from None
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        of = f" of {array.dtype}" if array.ndim else ""
        raise DomainError(f"an input is {kind}{of}, expected an array or a tensor of real numbers")
    return array


def cycles_of_nodes(made: Design, found: Simulation) -> dict[str, int]:
    """Cycles that the nodes of the dataflow graph kept their unit busy: the array's for layers and vector nodes, the
    SIMD unit's for others. Of several passes, the mean, rounded."""
    total: dict[str, int] = {}
    for item in found.per_node:
        name = made.flow.lowered_in(item.node)
        if name is None:
            continue
        work = made.flow.by_name[name].work
        # Bindings by constants may be done as layers.
        units = ("nn",) if isinstance(work, Layer) else ("vsa", "nn") if isinstance(work, Vectors) else ("vec",)
        for unit in item.busy.keys() & set(units):
            total[name] = total.get(name, 0) + item.busy[unit][1]
    return {name: round(count / found.passes) for name, count in total.items()}
