"""One column of the array, register by register and cycle by cycle: an oracle that shares no code with the library.

Each element has a stationary, a passing and a streaming register and one for its sum (NSFlow, figure 3(b)). A value
of the stream moves from the passing to the streaming register, then to the passing register of the element below; a
sum moves one element down each cycle. So the stream falls half as fast as the sums, and a sum meets the values of the
stream in the order that a circular convolution wants.
"""

import numpy as np


def run(stationary: np.ndarray, stream: list[float]) -> tuple[list[float], int]:
    """(what leaves the column from the first cycle on, cycles until the last value of the stream met all elements)."""
    height = len(stationary)
    held, passing, streaming, sums = (np.zeros(height) for _ in range(4))
    left, cycles = [], 0
    for value in stationary[::-1]:
        held = np.concatenate([[value], held[:-1]])
        cycles += 1
    # The last value reaches the first element's streaming register after 2 cycles; its sum leaves `height` later.
    for value in [*stream, *[0.0] * (height + 1)]:
        above = np.concatenate([[0.0], sums[:-1]])
        sums, streaming, passing = above + held * streaming, passing, np.concatenate([[value], streaming[:-1]])
        cycles += 1
        left.append(float(sums[-1]))
    return left, cycles


def convolution(a: np.ndarray, b: np.ndarray, height: int, *, correlation: bool = False) -> tuple[np.ndarray, int]:
    """c[t] = sum_i a[i] b[(t - i) mod d], or of a correlation a[i] b[(i - t) mod d], on one column of `height`
    elements, and the cycles it took. A vector longer than the column takes several passes, whose sums are added."""
    d = len(a)
    result, cycles = np.zeros(d), 0
    for start in range(0, d, height):
        part = np.zeros(height)
        part[: len(a[start : start + height])] = a[start : start + height]
        times = range(-(height - 1), d)  # before the first sum is whole, height - 1 values have to be on their way
        stream = [float(b[((start - t) if correlation else (t - start)) % d]) for t in times]
        left, spent = run(part, stream)
        result += left[-d:]
        cycles += spent
    return result, cycles
