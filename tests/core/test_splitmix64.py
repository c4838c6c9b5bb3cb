"""SplitMix64 against numbers that Vigna's C program prints, in Python, on arrays and in the text of kernels."""

from pathlib import Path

import numpy as np
import pytest

import derivable
from derivable.circuit.kernels.hashcons import finalized as compiled
from derivable.core import splitmix64

SEED = 1234567
STREAM = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]
STATES = [(SEED + (n + 1) * splitmix64.STEP) & splitmix64.MASK for n in range(len(STREAM))]


def test_the_stream_of_a_seed():
    assert [splitmix64.finalized(state) for state in STATES] == STREAM
    assert splitmix64.finalized_words(np.array(STATES, np.uint64)).tolist() == STREAM
    with np.errstate(over="ignore"):
        assert [int(compiled.py_func(np.uint64(state))) for state in STATES] == STREAM


def test_numbers_are_taken_modulo_their_range():
    assert splitmix64.finalized(-1) == splitmix64.finalized(splitmix64.MASK)
    assert splitmix64.finalized(0) == 0


@pytest.mark.parametrize("constant", [splitmix64.STEP, *(factor for _, factor in splitmix64.ROUNDS)])
def test_constants_are_written_down_once(constant):
    files = Path(derivable.__file__).parent.rglob("*.py")
    texts = {path: path.read_text().lower() for path in files}
    assert [path.name for path, text in texts.items() if f"{constant:x}" in text] == ["splitmix64.py"]
