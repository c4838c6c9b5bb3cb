"""The formats that everybody knows. Source: figure 10 of the paper for the first ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from derivable.core.diagnostics import ShapeError
from derivable.core.graph import offsets_of
from derivable.device.cpu.memory import full
from derivable.tensor.formats.format import FAMILIES, Format, only

# Formats that hold the entries which a sparse tensor has, and no others.
PLAIN = ("coo", "csr", "csc", "dcsr", "csf", "hashed")


def _dense(order: int) -> Format:
    place = "0"
    for k in range(order):
        place = f"i{k}" if k == 0 else f"({place}) * n{k} + i{k}"
    text = f"val({place})"
    for k in reversed(range(order)):
        text = f"sum(<_, i{k}> in (0:n{k})) {{ unique(i{k}) -> {text} }}"
    return Format("dense", order, text, {"val": "real"}, _pack_dense, own=_own_dense, attributes={"val": "ravel()"})


def _pack_dense(entries: Any, zero: Any) -> dict[str, Any]:
    val = full(entries.shape, zero, entries.values.dtype)
    val[tuple(entries.indices)] = entries.values
    return {"val": val.reshape(-1)}


def _own_dense(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, np.ndarray):
        return None
    value = np.ascontiguousarray(value)
    return {"val": value if value.ndim == 1 else value.reshape(-1)}


def _column_major(order: int) -> Format:
    only(order, 2, "column_major")
    text = "sum(<_, i> in (0:n0)) { unique(i) -> sum(<_, j> in (0:n1)) { unique(j) -> val(j * n0 + i) } }"

    def pack(entries: Any, zero: Any) -> dict[str, Any]:
        return {"val": _pack_dense(entries, zero)["val"].reshape(entries.shape).T.reshape(-1)}

    return Format("column_major", order, text, {"val": "real"}, pack)


def _coo(order: int) -> Format:
    text = "val(p)"
    for k in reversed(range(1, order)):
        text = f"{{ idx{k}(p) -> {text} }}"
    key = "unique(i)" if order == 1 else "i"
    text = f"sum(<p, i> in idx0(0:stored)) {{ {key} -> {text} }}"
    arrays: dict[str, Any] = {"idx0": "sorted" if order == 1 else "ascending", "val": "real"}
    arrays |= {f"idx{k}": "int" for k in range(1, order)}

    def pack(entries: Any, zero: Any) -> dict[str, Any]:
        found = {f"idx{k}": np.ascontiguousarray(entries.indices[k]) for k in range(order)}
        return {**found, "val": entries.values, "stored": len(entries.values)}

    return Format("coo", order, text, arrays, pack, ("stored",))


_ROW = "sum(<p, j> in idx(pos({row}):pos({row} + 1))) {{ unique(j) -> val(p) }}"


def _csr(order: int) -> Format:
    only(order, 2, "csr")
    text = f"sum(<_, i> in (0:n0)) {{ unique(i) -> {_ROW.format(row='i')} }}"

    def pack(entries: Any, zero: Any) -> dict[str, Any]:
        counts = np.bincount(entries.indices[0], minlength=entries.shape[0])
        return {"pos": offsets_of(counts), "idx": np.ascontiguousarray(entries.indices[1]), "val": entries.values}

    return Format("csr", order, text, {"pos": "offsets", "idx": "sorted", "val": "real"}, pack, (), _own("csr"), _SCIPY)


def _csc(order: int) -> Format:
    only(order, 2, "csc")
    text = "sum(<_, j> in (0:n1)) sum(<p, i> in idx(pos(j):pos(j + 1))) { i -> { j -> val(p) } }"

    def pack(entries: Any, zero: Any) -> dict[str, Any]:
        by_column = np.lexsort((entries.indices[0], entries.indices[1]))
        counts = np.bincount(entries.indices[1], minlength=entries.shape[1])
        return {"pos": offsets_of(counts), "idx": entries.indices[0][by_column], "val": entries.values[by_column]}

    return Format("csc", order, text, {"pos": "offsets", "idx": "sorted", "val": "real"}, pack, (), _own("csc"), _SCIPY)


def _own(kind: str) -> Any:
    def own(value: Any) -> dict[str, Any] | None:
        # Objects of SciPy are known by their form, so that SciPy is not imported for others.
        if getattr(value, "format", None) != kind or not getattr(value, "has_canonical_format", False):
            return None
        return {part: getattr(value, name) for part, name in _SCIPY.items()}

    return own


_SCIPY = {"pos": "indptr", "idx": "indices", "val": "data"}


def _dcsr(order: int) -> Format:
    only(order, 2, "dcsr")
    text = f"sum(<q, i> in rows(0:stored)) {{ unique(i) -> {_ROW.format(row='q')} }}"

    def pack(entries: Any, zero: Any) -> dict[str, Any]:
        rows, counts = np.unique(entries.indices[0], return_counts=True)
        arrays = {"pos": offsets_of(counts), "idx": np.ascontiguousarray(entries.indices[1]), "val": entries.values}
        return {**arrays, "rows": rows, "stored": len(rows)}

    kinds: dict[str, Any] = {"rows": "sorted", "pos": "offsets", "idx": "sorted", "val": "real"}
    return Format("dcsr", order, text, kinds, pack, ("stored",))


def _csf(order: int) -> Format:
    """A tree: for each axis the indices that occur below each node of the axis before."""
    text = f"val(p{order - 1})"
    for k in reversed(range(order)):
        part = f"idx{k}(pos{k}(p{k - 1}):pos{k}(p{k - 1} + 1))" if k else "idx0(0:stored)"
        text = f"sum(<p{k}, i{k}> in {part}) {{ unique(i{k}) -> {text} }}"
    kinds: dict[str, Any] = {"val": "real"} | {f"idx{k}": "sorted" for k in range(order)}
    kinds |= {f"pos{k}": "offsets" for k in range(1, order)}

    def pack(entries: Any, zero: Any) -> dict[str, Any]:
        count = len(entries.values)
        is_new = np.zeros(count, bool)
        is_new[:1] = True
        found: dict[str, Any] = {"val": entries.values}
        above = None
        for k in range(order):
            is_new[1:] |= entries.indices[k][1:] != entries.indices[k][:-1]
            starts = np.flatnonzero(is_new)
            found[f"idx{k}"] = entries.indices[k][starts]
            if above is not None:
                found[f"pos{k}"] = np.append(np.searchsorted(starts, above), len(starts))
            above = starts
        return {**found, "stored": len(found["idx0"])}

    return Format("csf", order, text, kinds, pack, ("stored",))


def _hashed(order: int) -> Format:
    """One table from all indices together to values."""
    key, text = "k", "val(p)"
    keys = []
    for k in reversed(range(1, order)):
        keys.insert(0, f"{key} % n{k}")
        key = f"{key} // n{k}"
    keys.insert(0, key)
    for one in reversed(keys):
        text = f"{{ unique({one}) -> {text} }}" if order == 1 else f"{{ {one} -> {text} }}"
    text = f"sum(<p, k> in keys(0:places)) if 0 <= k then {text}"

    def pack(entries: Any, zero: Any) -> dict[str, Any]:
        from derivable.tensor.formats.table import table_of

        if math.prod(entries.shape) >= 1 << 63:
            raise ShapeError(
                f"the format `hashed` numbers all places of a tensor, and one of shape {list(entries.shape)} has more "
                "than 64 bits number",
                hint="`coo` and `csf` hold it",
            )
        whole = np.zeros(len(entries.values), np.int64)
        for k in range(order):
            whole = whole * entries.shape[k] + entries.indices[k]
        keys, places = table_of(whole)
        val = np.full(len(keys), zero, entries.values.dtype)
        val[places] = entries.values
        return {"keys": keys, "val": val, "places": len(keys)}

    return Format("hashed", order, text, {"keys": "hashed", "val": "real"}, pack, ("places",))


for _name, _family in {
    "dense": _dense,
    "column_major": _column_major,
    "coo": _coo,
    "csr": _csr,
    "csc": _csc,
    "dcsr": _dcsr,
    "csf": _csf,
    "hashed": _hashed,
}.items():
    FAMILIES.add(_name, _family)
