"""Samples of a model's inputs in files, and the outputs for them: .npz by name, .npy and .csv of a single array."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from derivable.core.diagnostics import DerivableError
from derivable.core.files import atomic_write, checked_path

SUFFIXES = (".npz", ".npy", ".csv")


def read(path: str | os.PathLike, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The arrays of a file by the names of inputs, whose shapes these are.

    .npz has each by its name. .npy has the only input. .csv has the only input too, a row of numbers for each entry of
    its first axis; a first row without numbers is a heading.

    Raises DerivableError, with the file, where it cannot be read or has other inputs.
    """
    path, suffix = checked_path(path), checked_suffix(path)
    if suffix == ".npz":
        arrays = read_named(path)
    else:
        with _readable(path):
            array = _single(path) if suffix == ".npy" else _table(path)
        arrays = {next(iter(shapes)): array}
    if set(arrays) != set(shapes):
        hint = f"give a file .npz with arrays of these names: numpy.savez(FILE, {'=..., '.join(shapes)}=...)"
        raise DerivableError(
            f"the file has {', '.join(arrays) or 'no array'}, the model takes {', '.join(shapes)}",
            source=str(path),
            hint=hint,
        )
    if suffix == ".csv":
        ((name, shape),) = shapes.items()
        width = int(np.prod(shape[1:]))
        if arrays[name].shape[1] != width:
            raise DerivableError(
                f"rows have {arrays[name].shape[1]} numbers, and the input %{name} {list(shape)} has {width} in each "
                "entry of its first axis",
                source=str(path),
            )
        arrays[name] = arrays[name].reshape(-1, *shape[1:])
    return arrays


def read_named(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The arrays of an archive of NumPy by their names. Raises DerivableError, with the file, where it is none."""
    with _readable(path), np.load(path, allow_pickle=False) as file:
        if not hasattr(file, "files"):
            raise ValueError("it holds one array without a name")
        return {name: file[name] for name in file.files}


@contextlib.contextmanager
def _readable(path: str | os.PathLike) -> Iterator[None]:
    """Raises DerivableError, with the file, for any error."""
    try:
        yield
    except Exception as error:  # A damaged archive raises errors of many types.
        raise DerivableError(
            f"the samples cannot be read: {error}",
            source=str(path),
            hint="write them with numpy.savez(FILE, x=...), with the names of the model's inputs",
        ) from None


def _single(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        array = np.load(file, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it holds several arrays")
        if file.read(1):
            raise ValueError("it goes on behind its array")
    return array


def _table(path: Path) -> np.ndarray:
    text = path.read_text(encoding="utf-8-sig")
    first, _, rest = text.partition("\n")
    # A first row with some numbers is no heading but a damaged sample, which NumPy refuses.
    if not any(map(_is_number, first.split(","))):
        text = rest
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a file without rows
        return np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def write(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> Path:
    """Write arrays into a file, whole or not at all: .npz all by their names, .npy and .csv the only one, of which .csv
    has a row for each entry of its first axis. Raises DerivableError where it cannot be written."""
    path = checked_path(path)
    suffix = check_outputs(path, list(arrays))
    with atomic_write(path, "wb") as file:
        if suffix == ".npz":
            with zipfile.ZipFile(file, "w") as archive:
                for name, each in arrays.items():
                    # As `numpy.savez` does, which cannot name an array as one of its own arguments.
                    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, np.ascontiguousarray(each).reshape(each.shape))
            return path
        (array,) = arrays.values()
        if suffix == ".npy":
            np.save(file, array)
        else:
            rows = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
            np.savetxt(file, rows, "%.17g" if rows.dtype.kind == "f" else "%d", delimiter=",")
    return path


def check_outputs(path: str | os.PathLike, names: Sequence[str]) -> str:
    """How the name of a file for outputs of these names ends. Raises DerivableError where it cannot hold them all."""
    suffix = checked_suffix(path)
    if suffix != ".npz" and len(names) != 1:
        raise DerivableError(
            f"there are {len(names)} outputs, {', '.join(names)}, and {suffix} has one",
            source=str(path),
            hint="name a file .npz",
        )
    return suffix


def checked_suffix(path: str | os.PathLike) -> str:
    """How the name of a file ends. Raises DerivableError for what is none of `SUFFIXES`."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise DerivableError(
            f"the name ends with {suffix!r}", source=str(path), hint=f"name a file {', '.join(SUFFIXES)}"
        )
    return suffix
