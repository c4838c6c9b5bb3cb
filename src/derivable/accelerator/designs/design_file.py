"""`design.yaml`: a design in one file for people and programs, with the arrays of its constants beside it.

The file has a line for each operator and each node. It names the file of its arrays by what is in them, so that a new
design takes the place of an old one at the moment its `design.yaml` does.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from derivable.accelerator.designs.designs import LARGEST_SIDE, MOST_LANES, MOST_SUB_ARRAYS, Design
from derivable.accelerator.explore import schedule
from derivable.accelerator.explore.dataflow import dataflow
from derivable.accelerator.explore.exploration import Candidate, Exploration
from derivable.accelerator.explore.schedule import Placed, Schedule
from derivable.accelerator.explore.sizing import Memories, Memory
from derivable.accelerator.hardware.resources import Device
from derivable.accelerator.numbers.formats import prepare
from derivable.accelerator.numbers.layers import parse_precision, resolve
from derivable.accelerator.numbers.quantisation import Quantised
from derivable.accelerator.operators import operators
from derivable.accelerator.operators.operators import Operator, OperatorGraph
from derivable.accelerator.operators.runtime import MAPPINGS
from derivable.core.diagnostics import DerivableError, ParseError, Span
from derivable.core.files import atomic_write, checked_path

FORMAT = "derivable accelerator design 1"
FILE = "design.yaml"


def save(made: Design, directory: str | os.PathLike) -> None:
    """Write a design; see `Design.save`."""
    folder = checked_path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "a design is a folder of files; name one that is not there yet, or that may be written"
        raise DerivableError(
            f"cannot make the folder: {error.strerror or error}", source=str(folder), hint=hint
        ) from None
    arrays = _arrays(made)
    digest = _digest(arrays)
    name = f"constants-{digest[:12]}.npz"
    with atomic_write(folder / name, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    with atomic_write(folder / FILE) as file:
        for line in _lines(made, name, digest):
            file.write(line + "\n")
    for old in folder.glob("constants-*.npz"):
        if old.name != name:
            old.unlink(missing_ok=True)


def _arrays(made: Design) -> dict[str, np.ndarray]:
    arrays = {f"constant:{name}": array for name, array in sorted(made.graph.constants.items())}
    if made.quantised is not None:
        for kind in ("scales", "zeros"):
            for (name, place), value in sorted(getattr(made.quantised, kind).items()):
                arrays[f"{kind}:{place}:{name}"] = np.asarray(value)
        for kind in ("biases", "ranges"):
            for name, value in sorted(getattr(made.quantised, kind).items()):
                arrays[f"{kind}:{name}"] = np.asarray(value)
    return arrays


def _quantised(graph: OperatorGraph, precision: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> Quantised:
    found: dict[str, dict[Any, Any]] = {"scales": {}, "zeros": {}, "biases": {}, "ranges": {}}
    for key, value in arrays.items():
        kind, _, name = key.partition(":")
        if kind in ("scales", "zeros"):
            place, _, name = name.partition(":")
            found[kind][name, int(place)] = int(value) if kind == "zeros" else value
        elif kind in found:
            found[kind][name] = (float(value[0]), float(value[1])) if kind == "ranges" else value
    return Quantised(prepare(graph), precision, **found)


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


# Writing


def _lines(made: Design, constants: str, digest: str) -> Iterator[str]:
    found = made.exploration
    yield f"format: {FORMAT}"
    yield f"device: {_flow(asdict(made.device))}"
    yield f"precision: {_flow(made.precision)}"
    yield "# Processing elements that there may be, and those that there are."
    yield f"pes: {found.pes}"
    yield f"array: {_flow({'height': made.height, 'width': made.width, 'sub_arrays': made.sub_arrays})}"
    yield "# Parallel: layers and vector nodes run beside each other, else in turns on all sub-arrays. Adders: whether"
    yield "# those of partial sums take cycles. The partition is that of phase I; the schedule has each node's own."
    yield f"mode: {found.mode}"
    yield f"mapping: {found.mapping}"
    yield f"adders: {_flow(found.adders)}"
    yield f"partition: {_flow({'neural': found.partition[0], 'symbolic': found.partition[1]})}"
    yield "# Of the array for one pass when passes follow one another, and lanes of the SIMD unit."
    yield f"cycles: {made.cycles}"
    yield f"lanes: {made.lanes}"
    yield "# What phase I found in both modes, and the cycles of phase II."
    yield "exploration:"
    yield f"  sequential: {_flow(asdict(found.sequential))}"
    yield f"  parallel: {_flow(None if found.parallel is None else asdict(found.parallel))}"
    yield f"  tuned: {_flow(found.tuned)}"
    yield "# bytes of one copy, and ports in bits a cycle; tiles are the parts of its rows in which each layer runs."
    yield "memories:"
    for name in ("a1", "a2", "b", "c", "cache"):
        yield f"  {name}: {_flow(asdict(getattr(made.memories, name)))}"
    yield f"  tiles: {_flow(made.memories.tiles)}"
    yield "# Weights, and the scales and ranges of the calibration, in a file of arrays beside this one."
    yield f"constants: {_flow({'file': constants, 'sha256': digest})}"
    yield f"quantised: {_flow(made.quantised is not None)}"
    yield f"inputs: {_flow(made.graph.inputs)}"
    yield f"outputs: {_flow(made.graph.outputs)}"
    yield "# What the model computes: source is the module and the line of its file."
    yield "operators:"
    for operator in made.graph:
        yield f"  - {_flow({**asdict(operator), 'attributes': dict(operator.attributes)})}"
    yield "# Where and when the nodes of the array run: layers in their order, then vector nodes in theirs."
    yield "schedule:"
    for name, place in made.placed.items():
        cell = {"node": name, "work": str(place.node)}
        yield f"  - {_flow({**cell, 'sub_arrays': place.sub_arrays, 'start': place.start, 'end': place.end})}"


def _flow(value: Any) -> str:
    """A value on one line: JSON, of which YAML takes all but the way of writing some floats."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, float):
        text = repr(value)
        special = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
        mantissa, mark, exponent = text.partition("e")
        # YAML 1.1 wants a point before the exponent, and a sign in it.
        dotted = mantissa if "." in mantissa else f"{mantissa}.0"
        signed = exponent if exponent.startswith(("-", "+")) else f"+{exponent}"
        return special.get(text) or (f"{dotted}e{signed}" if mark else text)
    return json.dumps(value)


# Reading


class _Content:
    """A mapping of the file; what is missing or of another kind in it is an error with the path of its key."""

    def __init__(self, value: Any, path: str, source: str):
        self.source, self.path = source, path
        if not isinstance(value, dict):
            raise self.error(f"{path or 'the file'} is no mapping")
        self.value = value

    def error(self, message: str) -> ParseError:
        return ParseError(message, source=self.source, hint="`Design.save` writes such files; save the design again")

    def path_of(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def get(self, key: str, kind: type | tuple[type, ...]) -> Any:
        if key not in self.value:
            raise self.error(f"`{self.path_of(key)}` is missing")
        found = self.value[key]
        if not isinstance(found, kind) or (isinstance(found, bool) and kind is int):
            raise self.error(f"`{self.path_of(key)}` is {found!r}")
        return found

    def count(self, key: str, least: int = 0, most: int = 1 << 53) -> int:
        """A whole number from `least` to `most`."""
        found = self.get(key, int)
        if not least <= found <= most:
            expected = f"{least} or more" if found < least else f"{most} or less"
            raise self.error(f"`{self.path_of(key)}` is {found}, expected {expected}")
        return found

    def one_of(self, key: str, known: Sequence[str]) -> Any:
        found = self.get(key, str)
        if found not in known:
            raise self.error(f"`{self.path_of(key)}` is {found!r}, expected {' or '.join(known)}")
        return found

    def inner(self, key: str) -> _Content:
        return _Content(self.get(key, dict), self.path_of(key), self.source)

    def record(self, kind: type, **fixed: Any) -> Any:
        """A dataclass of the values of this mapping."""
        names = [each.name for each in fields(kind)]
        wrong = sorted(set(names) ^ (set(self.value) | set(fixed)))
        if wrong:
            what = "misses" if wrong[0] in names else "has"
            raise self.error(f"`{self.path}` {what} `{wrong[0]}`")
        for each in fields(kind):
            if each.name in fixed:
                continue
            if each.type == "int":
                self.count(each.name)
            elif each.type == "float" and not self.get(each.name, (int, float)) > 0:
                raise self.error(f"`{self.path}.{each.name}` is {self.value[each.name]}, expected a positive number")
            elif each.type == "str":
                self.get(each.name, str)
        try:
            return kind(**{**self.value, **fixed})
        except (TypeError, ValueError) as error:
            raise self.error(f"`{self.path}` is malformed: {error}") from None


def load(directory: str | os.PathLike) -> Design:
    """The design that `Design.save` wrote to a directory; also the path of its `design.yaml`.

    Nothing in the files is executed. Raises ParseError for files that are missing, damaged or do not belong together.
    """
    path = checked_path(directory)
    path = path / FILE if path.suffix != ".yaml" or os.path.isdir(path) else path
    content = _Content(_parsed(path), "", str(path))
    if content.value.get("format") != FORMAT:
        raise content.error(f"the format is {content.value.get('format')!r}, expected {FORMAT!r}")
    try:
        return _design(content, path)
    except ParseError:
        raise
    except DerivableError as error:
        raise ParseError(f"the design is not valid: {error.message}", source=str(path), hint=error.hint) from None
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        # A value of another kind where the graph has it is found by what reads it first.
        raise content.error(f"the design is not valid: {type(error).__name__}: {error}") from None


def _parsed(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        hint = "`Design.save` and `derivable accelerate` write designs"
        raise ParseError(f"cannot read the design: {error.strerror or error}", source=str(path), hint=hint) from None
    except UnicodeDecodeError:
        raise ParseError("this is no text", source=str(path)) from None
    try:
        return _yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        span = Span(mark.line + 1, mark.column + 1) if mark is not None else None
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise ParseError(f"this is no YAML: {problem}", source=str(path), text=text, span=span) from None


def _yaml(text: str) -> Any:
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _design(content: _Content, path: Path) -> Design:
    named = parse_precision(content.inner("precision").value)
    arrays = _read_arrays(content.inner("constants"), path.parent)
    constants = {name.partition(":")[2]: array for name, array in arrays.items() if name.startswith("constant:")}
    graph = OperatorGraph(
        tuple(_operator(_Content(item, "operators", content.source)) for item in content.get("operators", list)),
        tuple(content.get("inputs", list)),
        tuple(content.get("outputs", list)),
        constants,
    )
    operators.check(graph)
    precision = resolve(named, graph)
    flow = dataflow(graph, precision=precision)
    array, partition, steps = content.inner("array"), content.inner("partition"), content.inner("exploration")
    parallel = steps.get("parallel", (dict, type(None)))
    for mode in ("sequential", "parallel") if parallel else ("sequential",):
        steps.inner(mode).one_of("mapping", MAPPINGS)
    places = [_Content(item, "schedule", content.source) for item in content.get("schedule", list)]
    names = [place.get("node", str) for place in places]
    nodes = (*flow.layers, *flow.vectors)
    if names != [node.name for node in nodes]:
        raise content.error("`schedule` has not the nodes of the operators in their order")
    numbers = ("sub_arrays", "start", "end")
    placed = [
        Placed(node.work, *(place.count(name) for name in numbers))  # type: ignore[arg-type]
        for node, place in zip(nodes, places)
    ]
    split = len(flow.layers)
    found = Exploration(
        workload=flow.workload(),
        pes=content.count("pes", 1),
        height=array.count("height", 1, LARGEST_SIDE),
        width=array.count("width", 1, LARGEST_SIDE),
        sub_arrays=array.count("sub_arrays", 1, MOST_SUB_ARRAYS),
        partition=(partition.count("neural", 1, MOST_SUB_ARRAYS), partition.count("symbolic", 1, MOST_SUB_ARRAYS)),
        mapping=content.one_of("mapping", MAPPINGS),
        mode=content.one_of("mode", ("parallel", "sequential")),
        schedule=Schedule(array.count("sub_arrays", 1), tuple(placed[:split]), tuple(placed[split:])),
        sequential=steps.inner("sequential").record(Candidate),
        parallel=None if parallel is None else steps.inner("parallel").record(Candidate),
        tuned=None if steps.get("tuned", (int, type(None))) is None else steps.count("tuned", 1),
        adders=content.get("adders", bool),
    )
    schedule.check(found.schedule, found.costs)
    if found.cycles != content.get("cycles", int):
        raise content.error(f"`cycles` is {content.value['cycles']}, the schedule ends after {found.cycles}")
    sizes = content.inner("memories")
    tiles = sizes.get("tiles", list)
    if len(tiles) != split or not all(type(tile) is int and tile > 0 for tile in tiles):
        raise content.error(f"`memories.tiles` is {tiles}, expected a positive number for each of {split} layers")
    memories = Memories(
        *(sizes.inner(name).record(Memory) for name in ("a1", "a2", "b", "c", "cache")),
        tiles=tuple(tiles),
    )
    quantised = _quantised(graph, precision, arrays) if content.get("quantised", bool) else None
    device = content.inner("device").record(Device)
    lanes = content.count("lanes", 1, MOST_LANES)
    made = Design(graph, flow, found, memories, lanes, device, precision, quantised)
    _compare(content, made)
    return made


def _compare(content: _Content, made: Design) -> None:
    """Raises ParseError for what the file says and the design that was made of it does not."""
    constants = content.inner("constants")
    lines = _lines(made, constants.get("file", str), constants.get("sha256", str))
    expected = _yaml("\n".join(lines))
    for key in sorted({*expected, *content.value}):
        if key not in expected:
            raise content.error(f"`{key}` is nothing that a design has")
        if _text(content.value.get(key)) != _text(expected[key]):
            place, found, wanted = _difference(key, content.value.get(key), expected[key])
            raise content.error(f"`{place}` is {found!r}, and the design has {wanted!r}")


def _difference(place: str, found: Any, wanted: Any) -> tuple[str, Any, Any]:
    """The innermost place in which two values of YAML differ."""
    if isinstance(found, dict) and isinstance(wanted, dict) and found.keys() == wanted.keys():
        parts = [(f"{place}.{key}", found[key], wanted[key]) for key in wanted]
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        parts = [(f"{place}[{at}]", *pair) for at, pair in enumerate(zip(found, wanted))]
    else:
        return place, found, wanted
    return next(_difference(*part) for part in parts if _text(part[1]) != _text(part[2]))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _operator(item: _Content) -> Operator:
    attributes = item.inner("attributes").value
    return item.record(
        Operator,
        inputs=tuple(item.get("inputs", list)),
        shape=tuple(item.get("shape", list)),
        attributes=tuple(sorted((name, _tuples(value)) for name, value in attributes.items())),
    )


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _read_arrays(content: _Content, folder: Path) -> dict[str, np.ndarray]:
    name, expected = content.get("file", str), content.get("sha256", str)
    path = folder / Path(name).name
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except OSError as error:
        raise ParseError(
            f"cannot read the constants: {error.strerror or error}",
            source=str(path),
            hint=f"keep it in one folder with {FILE}",
        ) from None
    except Exception:
        arrays = {}  # a damaged archive raises errors of many types
    if _digest(arrays) != expected:
        raise ParseError("these are not the constants of the design", source=str(path), hint="save the design again")
    return arrays
