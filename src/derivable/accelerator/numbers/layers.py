"""The format of each layer: from what a user names to operators.

    {"conv1": "int8", "head": "int8", "*": "int4"}
      --resolve--> {"neural": "int4", "symbolic": "int4", "conv2d_1": "int8", "linear_3": "int8"}

A name is that of a part of the model, of a module, which is all in it, or of an operator; `*` is all that nothing else
names. The nearest name holds: of an operator before that of a module, of an inner module before an outer one, and each
of these before a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from derivable.accelerator.numbers.precision import PRECISIONS, format_of
from derivable.accelerator.operators.operators import Operator, OperatorGraph
from derivable.core.diagnostics import DomainError
from derivable.core.registry import similar, suggestion

PARTS = ("neural", "symbolic")
REST = "*"
DEFAULT_PRECISION: Mapping[str, str] = MappingProxyType({"neural": "int8", "symbolic": "int4"})
_SUCH_AS = f'such as {dict(DEFAULT_PRECISION)}, or {{"conv1": "int8", "{REST}": "int4"}}'


def parse_precision(precision: Mapping[str, str] | str) -> dict[str, str]:
    """Names of formats by names of parts, modules and operators, both parts among them.

    Of a text, "int8/int4" is the formats of both parts, "int8" that of all, and "conv1=int8,*=int4" names layers.

    Raises DomainError, with the nearest name, for a format that there is not, and for a part without one.
    """
    if isinstance(precision, str):
        names = precision.split("/")
        if "=" in precision:
            pairs = [item.partition("=") for item in precision.split(",")]
            precision = {name.strip(): format.strip() for name, _, format in pairs}
        elif len(names) > 2:
            raise DomainError(f"precision is {precision!r}", hint='"int8", or "int8/int4" of both parts')
        else:
            precision = dict(zip(PARTS, (names[0], names[-1])))
    if not isinstance(precision, Mapping):
        raise DomainError(f"precision is {precision!r}, expected a format of each part", hint=_SUCH_AS)
    for name in precision:
        if not isinstance(name, str):
            raise DomainError(f"precision has a format of {name!r}, expected a name", hint=_SUCH_AS)
    formats = {name: PRECISIONS[format].name for name, format in precision.items()}
    if REST in formats:
        formats = dict.fromkeys(PARTS, formats.pop(REST)) | formats
    for part in PARTS:
        if part not in formats:
            misspelt = next((name for name in formats if name not in PARTS and similar(name, [part])), None)
            if misspelt is None:
                raise DomainError(f"precision has no format of the {part} part", hint=_SUCH_AS)
            raise DomainError(
                f"precision is of a part {misspelt!r}, and has no format of the {part} part",
                hint=suggestion(misspelt, [part], _SUCH_AS),
            )
    return {part: formats[part] for part in PARTS} | formats


def resolve(precision: Mapping[str, str], graph: OperatorGraph) -> dict[str, str]:
    """The formats of both parts, and those of operators that have another one than their part.

    precision  as `parse_precision` gives it

    Raises DomainError, with the nearest name, for one that is of no operator whose operands are rounded.
    """
    named = {name: format for name, format in precision.items() if name not in PARTS}
    formats = {part: precision[part] for part in PARTS}
    used: set[str] = set()
    rounded = [operator for operator in graph if _is_rounded(operator)]
    for operator in rounded:
        name = next((name for name in names_of(operator) if name in named), None)
        if name is not None and named[name] != formats[operator.part]:
            formats[operator.name] = named[name]
        used.update(names_of(operator))
    for name in named:
        if name not in used:
            known = [*PARTS, *dict.fromkeys(each for operator in rounded for each in names_of(operator))]
            raise DomainError(
                f"precision is of {name!r}, which is no part, module or operator with operands that are rounded",
                hint=suggestion(name, known, f"layers are {', '.join(known[len(PARTS) :][:12])}"),
            )
    return formats


def names_of(operator: Operator) -> Iterator[str]:
    """The name of an operator, then those of the modules that it is in, from the innermost outwards."""
    yield operator.name
    yield from outwards(operator.module)


def outwards(module: str) -> Iterator[str]:
    """The path of a module, then those of the modules that it is in: "a.b.c", "a.b", "a"; none of ""."""
    while module:
        yield module
        module = module.rpartition(".")[0]


def widest(precision: Mapping[str, str], graph: OperatorGraph) -> dict[str, str]:
    """The widest format of each part, for which memories and elements of the array are estimated."""
    formats = {part: PRECISIONS[precision[part]] for part in PARTS}
    for operator in graph:
        format = format_of(operator.name, operator.part, precision)
        formats[operator.part] = max(formats[operator.part], format, key=lambda each: each.bits)
    return {part: format.name for part, format in formats.items()}


def described(precision: Mapping[str, str]) -> str:
    """In words: "int4 neural, int4 symbolic, int8 %conv2d_1"."""
    parts = [f"{precision[part]} {part}" for part in PARTS]
    by_format: dict[str, list[str]] = {}
    for name, format in precision.items():
        if name not in PARTS:
            by_format.setdefault(format, []).append(f"%{name}")
    return ", ".join([*parts, *(f"{format} {' '.join(names)}" for format, names in by_format.items())])


def is_layer(graph: OperatorGraph, operator: Operator) -> bool:
    """Whether an operator is conv2d, linear, or a product of a value by a constant matrix."""
    if operator.kind == "matmul":
        a, b = (graph[name] for name in operator.inputs)
        return a.kind != "constant" and b.kind == "constant" and len(b.shape) == 2
    return operator.kind in ("conv2d", "linear") and graph[operator.inputs[1]].kind == "constant"


def _is_rounded(operator: Operator) -> bool:
    """Whether operands are narrow, of it or of what it is written out as."""
    return operator.unit in ("gemm", "vector") or operator.kind == "match_probability" or bool(operator.row.composite)
