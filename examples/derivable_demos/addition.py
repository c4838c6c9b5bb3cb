"""Adding two handwritten numbers: the logic programs, the pairs, and which images show which digit.

An image of a number's digit at place i (0 is the most significant) is an input relation
`digit_NUMBER_i`, or `digit_NUMBER` if numbers have one digit. Two ways to say the same knowledge:

sums      one output per possible sum. One digit: `rel sum_2(a + b) = digit_1(a), digit_2(b)`. The
          circuit has a product for every pair of numbers: 100, 10^4, 10^6 for one, two, three digits.
columns   school addition, column by column with a carry, and the known sum as evidence; the one
          output `correct` has the probability that the images show that sum. The circuit grows
          linearly with the number of digits.
"""

from __future__ import annotations

import numpy as np

from derivable.core.diagnostics import DomainError

NUMBERS = (1, 2)


def digit_relations(num_digits: int) -> list[str]:
    """The input relations, in the order in which a pair lists its images: first number, most significant first."""
    if num_digits == 1:
        return [f"digit_{number}" for number in NUMBERS]
    return [f"digit_{number}_{place}" for number in NUMBERS for place in range(num_digits)]


def sum_relations(num_digits: int) -> list[str]:
    """The evidence relations of the `columns` program: the digits of the sum, most significant first."""
    return [f"sum_{place}" for place in range(num_digits + 1)]


def num_sums(num_digits: int) -> int:
    """How many sums two numbers can have: 19, 199, 1999."""
    return 2 * 10**num_digits - 1


def sums_program(num_digits: int) -> str:
    """The program with one fact `sum_2(s)` for each possible sum s."""
    if num_digits == 1:
        return "rel sum_2(a + b) = digit_1(a), digit_2(b)\n"
    places = range(num_digits)
    rows = []
    for number in NUMBERS:
        value = " + ".join(f"{10 ** (num_digits - 1 - place)} * d{place}" for place in places)
        body = ", ".join(f"digit_{number}_{place}(d{place})" for place in places)
        rows.append(f"rel number_{number}({value}) = {body}")
    rows.append("rel sum_2(a + b) = number_1(a), number_2(b)")
    return "\n".join(rows) + "\n"


def columns_program(num_digits: int) -> str:
    """The program with the one fact `correct()`: the images add up to the digits in `sum_0`, `sum_1`, ..."""
    first, second = (digit_relations(num_digits)[half * num_digits :][:num_digits] for half in (0, 1))
    rows = [f"rel carry_{num_digits}(0)"]
    for place in reversed(range(num_digits)):
        rows.append(
            f"rel carry_{place}((a + b + c) / 10) = carry_{place + 1}(c), {first[place]}(a), {second[place]}(b), "
            f"sum_{place + 1}(s), s == (a + b + c) % 10"
        )
    rows.append("rel correct() = carry_0(c), sum_0(c)")
    return "\n".join(rows) + "\n"


def pairs(num_images: int, num_digits: int, rounds: int, seed: int) -> np.ndarray:
    """Which images each example shows: [example, 2 * num_digits] int64; every image at most once in a round.

    Raises DomainError if there are not enough images for one example.
    """
    width = 2 * num_digits
    if num_images < width:
        raise DomainError(f"{num_images} images do not make one pair of {num_digits}-digit numbers ({width} images)")
    generator = np.random.default_rng(seed)
    per_round = num_images // width
    return np.concatenate(
        [generator.permutation(num_images)[: per_round * width].reshape(per_round, width) for _ in range(rounds)]
    ).astype(np.int64)


def sums(labels: np.ndarray, examples: np.ndarray) -> np.ndarray:
    """The sum each example shows: [example] int64, from labels [image] and examples [example, 2 * digits]."""
    num_digits = examples.shape[1] // 2
    place_value = 10 ** np.arange(num_digits - 1, -1, -1)
    return (labels[examples].reshape(len(examples), 2, num_digits) @ place_value).sum(axis=1)


def sum_digits(totals: np.ndarray, num_digits: int) -> np.ndarray:
    """The decimal digits of sums, most significant first: [example, num_digits + 1] int64."""
    return totals[:, None] // 10 ** np.arange(num_digits, -1, -1) % 10
