"""This library's own circuit format (.dvc): compact, checked, written whole or not at all.

    8 bytes   b"\\x89DVC\\r\\n\\x1a\\n" (a text-mode transfer or a cut breaks it)
    uint32    version, little-endian like all that follows
    uint32    length of the header
    header    JSON: counts, and name, dtype and length of each array that follows
    arrays    one after the other, in the smallest unsigned dtype that holds them
    uint32    CRC-32 of everything before it

Level offsets, kinds and offsets are stored as what they are differences or runs of, and a child as its
distance to its parent, so that the numbers are small. No pickle: reading runs no code from the file.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import Any

import numpy as np

from derivable.circuit.files.vtree_file import parse_vtree
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.validate import validate_layout
from derivable.core.and_or import AND, LITERAL
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import LayoutError, ParseError
from derivable.core.files import atomic_write, read_bytes
from derivable.core.graph import offsets_of

MAGIC = b"\x89DVC\r\n\x1a\n"
VERSION = 1
_MOST_VARIABLES = 2**31 - 1
_FIXED = struct.Struct("<8sII")
_DTYPES = ("|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8", "<f8")


def save(circuit: Circuit, path: str | os.PathLike) -> None:
    """Write `circuit` to `path`; the old file stays until the new one is complete.

    All of it is kept: several roots, number of variables, weights, names, origin, vtree.
    """
    with atomic_write(path, "wb") as file:
        file.write(content(circuit))


def content(circuit: Circuit) -> bytes:
    """The bytes of the format; equal circuits give equal bytes."""
    arrays: dict[str, np.ndarray] = {
        "level_sizes": _small(np.diff(circuit.level_offsets)),
        "kind": circuit.kind,
        "literal": _small_signed(circuit.literal[circuit.kind == LITERAL]),
        "sizes": _small(circuit.sizes[circuit.kind >= AND]),
        "distances": _small(circuit.parents - circuit.children),
        "roots": _small(circuit.roots),
    }
    if circuit.weights is not None:
        arrays["weights"], arrays["negative_weights"] = circuit.weights
    header: dict[str, Any] = {"num_variables": circuit.num_variables, "origin": circuit.origin}
    if circuit.names is not None:
        header["names"] = list(circuit.names)
    if circuit.vtree is not None:
        header["vtree"] = circuit.vtree.text()
    header["arrays"] = [[name, array.dtype.str.replace(">", "<"), len(array)] for name, array in arrays.items()]
    text = json.dumps(header, separators=(",", ":")).encode()
    body = [_FIXED.pack(MAGIC, VERSION, len(text)), text]
    body += [array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes() for array in arrays.values()]
    data = b"".join(body)
    return data + struct.pack("<I", zlib.crc32(data))


def load(path: str | os.PathLike) -> Circuit:
    """Read what `save` wrote. Raises ParseError for anything else, a cut or a changed file included."""
    return parse(read_bytes(path), os.fspath(path))


def parse(data: bytes, source: str | None = None) -> Circuit:
    """The circuit in the bytes of a file."""
    if not data.startswith(MAGIC):
        raise ParseError("this is not a circuit file of this library", source=source, hint="circuit.save writes one")
    cut = "fetch or write the file again"
    if len(data) < _FIXED.size + 4:
        raise ParseError(f"the file ends after {len(data)} bytes, within its header", source=source, hint=cut)
    _, version, length = _FIXED.unpack_from(data)
    if version > VERSION:
        raise ParseError(
            f"the file has format version {version}, this library reads up to {VERSION}",
            source=source,
            hint="update derivable, or save the circuit again with this version",
        )
    if _FIXED.size + length + 4 > len(data):
        raise ParseError(f"the file ends after {len(data)} bytes, within its header", source=source, hint=cut)
    intact = zlib.crc32(data[:-4]) == struct.unpack("<I", data[-4:])[0]
    header: dict[str, Any] = {}
    try:
        header = json.loads(data[_FIXED.size : _FIXED.size + length])
        arrays, end = _arrays(data, header["arrays"], _FIXED.size + length)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ParseError("the header is damaged", source=source, hint=cut) from None
    if end + 4 > len(data):
        raise ParseError(f"the file has {len(data)} bytes of {end + 4}; it was cut off", source=source, hint=cut)
    if not intact:
        raise ParseError("the checksum does not match: the file was changed or damaged", source=source, hint=cut)
    if end + 4 < len(data):
        raise ParseError(f"{len(data) - end - 4} bytes follow the end of the circuit", source=source, hint=cut)
    try:
        _checked(header, arrays)
        circuit = _circuit(header, arrays)
        # A checksum does not make a circuit: kernels index without looking.
        validate_layout(circuit)
        return circuit
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, LayoutError) as error:
        raise ParseError(
            f"the circuit in the file is not valid: {error}", source=source, hint="save the circuit again"
        ) from None


def _checked(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Raise ValueError where what the header and the sizes announce does not fit, before anything is made of it."""
    count = header["num_variables"]
    if not is_integer(count) or not 0 <= count <= _MOST_VARIABLES:
        raise ValueError(f"{str(count)[:40]!r} is no number of variables")
    edges, announced = len(arrays["distances"]), arrays["sizes"].astype(np.float64).sum()
    if announced != edges:
        raise ValueError(f"its nodes have {announced:.0f} children, and there are {edges}")
    nodes, announced = len(arrays["kind"]), arrays["level_sizes"].astype(np.float64).sum()
    if announced != nodes:
        raise ValueError(f"its levels have {announced:.0f} nodes, and there are {nodes}")


def _arrays(data: bytes, rows: list, position: int) -> tuple[dict[str, np.ndarray], int]:
    """The arrays and where they end; arrays beyond the end of the data are left out."""
    arrays = {}
    for name, dtype, length in rows:
        if dtype not in _DTYPES or not isinstance(length, int) or length < 0:
            raise ValueError(f"array {name}")
        kind = np.dtype(dtype)
        end = position + kind.itemsize * length
        if end <= len(data):
            arrays[name] = np.frombuffer(data, kind, length, position)
        position = end
    return arrays, position


def _circuit(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Circuit:
    kind = arrays["kind"].astype(np.uint8)
    count = len(kind)
    sizes = np.zeros(count, np.int64)
    sizes[kind >= AND] = arrays["sizes"]
    literal = np.zeros(count, np.int32)
    literal[kind == LITERAL] = arrays["literal"]
    parents = np.repeat(np.arange(count), sizes)
    weights = None
    if "weights" in arrays:
        weights = (arrays["weights"].astype(np.float64), arrays["negative_weights"].astype(np.float64))
    names, vtree = header.get("names"), header.get("vtree")
    if names is not None and (len(names) != header["num_variables"] or not all(isinstance(n, str) for n in names)):
        raise ValueError("the names are not those of its variables")
    return Circuit(
        kind=kind,
        literal=literal,
        offsets=offsets_of(sizes),
        children=(parents - arrays["distances"]).astype(np.int32),
        level_offsets=offsets_of(arrays["level_sizes"]),
        roots=arrays["roots"].astype(np.int64),
        num_variables=header["num_variables"],
        weights=weights,
        origin=str(header["origin"]),
        names=None if names is None else tuple(names),
        vtree=None if vtree is None else parse_vtree(vtree.encode()),
    )


def _small(array: np.ndarray) -> np.ndarray:
    """The same numbers in the smallest unsigned dtype."""
    return array.astype(np.min_scalar_type(int(array.max(initial=0))))


def _small_signed(array: np.ndarray) -> np.ndarray:
    return array.astype(np.min_scalar_type(-int(np.abs(array).max(initial=0)) - 1))
