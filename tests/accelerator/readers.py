"""Readers of programs: of their printed form, and of the words of an instruction."""

from derivable.accelerator.machine.instructions import (
    FIELDS,
    HEADER,
    KINDS,
    NUM_UNITS,
    OPERATIONS,
    UNITS,
    Program,
    places,
)


def parse(source):
    """The program of a printed form."""
    return Program([_line(line) for line in source.splitlines()])


def _line(line):
    code, _, note = line.partition(" ; ")
    head, *words = code.split()
    unit, _, operation = head.partition(".")
    node, _, of_pass = note.partition(" of pass ")
    values = dict(word.split("=") for word in words)
    needs = dict(pair.split(":") for pair in values.pop("needs", "").split(",") if pair)
    names = {item.name: item.names for item in FIELDS[unit]}
    return KINDS[unit](
        operation=operation or "end",
        needs=tuple(int(needs.get(other, 0)) for other in UNITS[:NUM_UNITS]),
        node=node,
        of_pass=int(of_pass or 0),
        **{name: value if names[name] else int(value) for name, value in values.items()},
    )


def decode(words):
    """The instruction of 16 words."""
    bits = sum(int(word) << (32 * number) for number, word in enumerate(words))

    def number(first, count):
        return bits >> first & ((1 << count) - 1)

    unit = UNITS[number(*HEADER["UNIT"])]
    values = {}
    for item, place in zip(FIELDS[unit], places(unit).values()):
        value = number(*place)
        value -= (1 << item.bits) if item.is_signed and value >> (item.bits - 1) else 0
        values[item.name] = item.names[value] if item.names else value
    needs = tuple(number(*HEADER[f"NEED_{other.upper()}"]) for other in UNITS[:NUM_UNITS])
    return KINDS[unit](operation=OPERATIONS[unit][number(*HEADER["OPERATION"])], needs=needs, **values)
