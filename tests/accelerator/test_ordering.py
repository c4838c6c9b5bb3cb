"""Orders of instructions: memories stay as they are, and what is ready does not wait behind what is not."""

import numpy as np
import pytest

from accelerator.random_programs import SMALL, random_program
from derivable.accelerator.lower.emission import Emitter
from derivable.accelerator.lower.ordering import ordered, quickest
from derivable.accelerator.machine import hazards, machine
from derivable.accelerator.machine.instructions import End, Program, Transfer, Vector


def emitter(program):
    """The instructions of a program, written one after the other."""
    found = Emitter(SMALL)
    for instruction in program.instructions[:-1]:
        found.add(instruction)
    return found


@pytest.mark.parametrize("by_length", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_another_order_leaves_memories_as_they_are(seed, by_length):
    program, far = random_program(SMALL, seed, 60)
    state = machine.State(SMALL, far.copy())
    written = emitter(program)
    found = ordered(written.written, by_length)
    assert found != sorted(found) == list(range(len(program) - 1))
    for number in found:
        machine.execute(state, program.instructions[number])
    expected = machine.run(SMALL, program, far)
    np.testing.assert_array_equal(state.off_chip, expected.memory)
    best = quickest(written)
    hazards.check(SMALL, best, len(far))
    run = machine.run(SMALL, best, far)
    np.testing.assert_array_equal(run.memory, expected.memory)
    assert run.cycles <= expected.cycles


def test_what_is_ready_goes_before_what_waits():
    load = Transfer(operation="load", x=0, far=0, lines=8)
    waits = Vector(operation="first", a=0, y=1024, needs=(1, 0, 0, 0, 0))
    other = Vector(operation="first", n2=20, a=2048, a2=8, y=4096, y2=8)
    written = Program([load, waits, other, End()])
    best = quickest(emitter(written))
    assert [one.y for one in best if isinstance(one, Vector)] == [4096, 1024]
    cycles = [machine.timing(SMALL, each)[1][-1] for each in (written, best)]
    assert cycles[1] <= cycles[0] - 15
