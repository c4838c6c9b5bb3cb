"""Reading text that may be gzipped; writing files whole or not at all."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from derivable.core.diagnostics import DerivableError, DomainError, OutOfMemory, ParseError

GZIP_MAGIC = b"\x1f\x8b"
STANDARD_INPUT = "<stdin>"
_PART = 1 << 24  # bytes that are decompressed between looks at limits
UNFINISHED = ".unfinished"  # how names of temporary files end


def checked_path(path: str | os.PathLike) -> Path:
    """`path` as a Path. Raises DomainError for anything that names no file."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise DomainError(f"{path!r} is no path", hint="give the name of a file, a string or a pathlib.Path")
    if "\0" in os.fspath(path):
        raise DomainError(f"{path!r} is no path: it has a character of number 0", hint="give the name of a file")
    return Path(path)


def is_file(path: Path) -> bool:
    """Whether there is a file, which is not so for names that no system has. (`Path.is_file` has errors for these.)"""
    return os.path.isfile(path)


def followed(path: str | os.PathLike) -> Path:
    """The whole path, without links; one whose links lead in a circle stays as it is, and nothing can be opened there.

    Raises DomainError for anything that names no file. (`Path.resolve` has errors of its own for both.)
    """
    return Path(os.path.realpath(checked_path(path)))


def read_bytes(path: str | os.PathLike, look: Callable[[], Any] | None = None) -> bytes:
    """The content of a file, decompressed if it starts with gzip's magic number, whatever its name, and without the
    mark of UTF-8 at the beginning of texts.

    look  called after every 16 MiB that are read or decompressed: it raises what ends the reading, at a limit

    Raises DomainError for what is no path, ParseError for a missing file, a directory, or a damaged gzip stream,
    OutOfMemory for one that holds more than half of the machine's memory.
    """
    place = checked_path(path)
    return _decompressed(path, place.read_bytes if look is None else lambda: _in_parts(open(place, "rb"), look), look)


def utf8_text(data: bytes, source: str | None) -> str:
    """The text of a file. Raises ParseError for what is none."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8 text: byte {error.start} is {data[error.start]:#04x}, in line {line}"
        raise ParseError(message, source=source, hint="save the file as UTF-8") from None


def read_beginning(path: str | os.PathLike, size: int) -> bytes:
    """So many bytes, decompressed, of the beginning of a file; none of one that `read_bytes` will refuse."""
    try:
        with open(checked_path(path), "rb") as file:
            if file.peek(2)[:2] == GZIP_MAGIC:
                with gzip.GzipFile(fileobj=file) as stream:
                    return stream.read(size)
            return file.read(size)
    except (EOFError, OSError, zlib.error):
        return b""


def read_standard_input(look: Callable[[], Any] | None = None) -> bytes:
    """What `read_bytes` gives for a file, from standard input; messages call it `STANDARD_INPUT`."""
    return _decompressed(STANDARD_INPUT, sys.stdin.buffer.read, look)


def read_buffer(
    path: str | os.PathLike, allocate: Callable[[int], Any], look: Callable[[], Any] | None = None
) -> bytes | memoryview:
    """What `read_bytes` returns, and raises, in memory of the caller's choice if the file is not gzipped.

    allocate  from a size to a writable, contiguous buffer of that number of bytes
    """
    place = checked_path(path)
    return _decompressed(path, lambda: _read_into(place, allocate), look)


def _read_into(place: Path, allocate: Callable[[int], Any]) -> bytes | memoryview:
    with open(place, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        view = memoryview(allocate(size)).cast("B")
        filled = 0
        while filled < size and (count := file.readinto(view[filled:])):
            filled += count
        # Pipes have no size, and a file may have grown.
        rest = file.read()
    # Read-only like bytes, so that kernels meet one type.
    return bytes(view[:filled]) + rest if rest else view[:filled].toreadonly()


def _in_parts(stream: IO[bytes], look: Callable[[], Any]) -> bytes:
    """All of a stream, with looks at the limits."""
    with stream:
        parts = []
        while part := stream.read(_PART):
            parts.append(part)
            look()
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unmarked(data: Any) -> Any:
    return data[len(codecs.BOM_UTF8) :] if bytes(data[: len(codecs.BOM_UTF8)]) == codecs.BOM_UTF8 else data


def _decompressed(path: str | os.PathLike, read: Callable[[], Any], look: Callable[[], Any] | None) -> Any:
    try:
        data = read()
    except OSError as error:
        raise ParseError(
            f"cannot read the file: {error.strerror or error}", source=os.fspath(path), hint="check the path"
        ) from None
    if bytes(data[:2]) != GZIP_MAGIC:
        return _unmarked(data)
    most, content = _memory() // 2, io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while part := stream.read(_PART):
                content.write(part)
                if look is not None:
                    look()
                if content.tell() > most:
                    raise OutOfMemory(
                        f"the file of {len(data):,} bytes holds more than {content.tell():,}, half of the memory",
                        source=os.fspath(path),
                        hint="decompress it, and see what it is",
                    )
    except (EOFError, OSError, zlib.error) as error:
        raise ParseError(
            f"the gzip stream is damaged after {len(data)} bytes: {error}",
            source=os.fspath(path),
            hint="fetch the file again; it was probably cut off",
        ) from None
    return _unmarked(content.getvalue())  # without a copy


def _memory() -> int:
    """Bytes that this process may use: the machine's, or its limit on addresses."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    except (AttributeError, ImportError, OSError, ValueError):
        return 1 << 34
    return memory if soft == resource.RLIM_INFINITY else min(memory, soft)


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "w", is_durable: bool = True) -> Iterator[IO]:
    """Open a temporary file beside `path`; rename it to `path` on success, delete it on any failure.

    What a process that was killed while it wrote to `path` has left behind is deleted as well.
    is_durable  whether it waits until the file is on disk, so that it is whole after a power failure too
    Raises DerivableError if the file cannot be written: no such folder, `path` is a folder, the disk is full.
    """
    target = checked_path(path)
    name, lock = None, -1
    try:
        _remove_unfinished(target)
        descriptor, name, lock = _unfinished(target)
        with os.fdopen(descriptor, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except BaseException as error:
        if name is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        if isinstance(error, OSError):
            raise DerivableError(
                f"cannot write the file: {error.strerror or error}",
                source=os.fspath(path),
                hint="check that its folder exists and may be written, and that this names a file",
            ) from None
        raise
    finally:
        if lock >= 0:
            os.close(lock)


def write_texts(folder: str | os.PathLike, texts: Mapping[str, str]) -> Path:
    """Write {name: text} into a folder, which is made if it is not there; other files in it stay. Returns the folder.

    Raises DerivableError where it cannot be written.
    """
    target = checked_path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (target / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise DerivableError(f"cannot write the folder: {error.strerror or error}", source=os.fspath(folder)) from None
    return target


@contextlib.contextmanager
def locked(path: str | os.PathLike) -> Iterator[None]:
    """Hold the lock that is the file `path`, which stays: no other process, and no other thread, is in here.

    Where the file system has no locks, there is none, and two may do the same work.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _unfinished(target: Path) -> tuple[int, str, int]:
    """A new temporary file beside `target`: its descriptor, its name, and a descriptor that keeps it locked, or -1."""
    import tempfile

    while True:
        descriptor, name = tempfile.mkstemp(UNFINISHED, f".{target.name}.", target.parent)
        if not _lock(descriptor):
            return descriptor, name, -1
        # Another process may have taken it for a leftover in between.
        if os.fstat(descriptor).st_nlink:
            return descriptor, name, os.dup(descriptor)
        os.close(descriptor)


def _lock(descriptor: int, *, wait: bool = True) -> bool:
    """Whether the file is now locked by us: the lock ends with its last descriptor, so with the process."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):  # no such locks here, or on this file system
        return False
    return True


def _remove_unfinished(target: Path) -> None:
    """Delete temporary files for `target` that no process is writing."""
    pattern = re.compile(re.escape(f".{target.name}.") + r"[a-z0-9_]{8}" + re.escape(UNFINISHED))
    for name in filter(pattern.fullmatch, os.listdir(target.parent)):
        with contextlib.suppress(OSError):
            descriptor = os.open(target.parent / name, os.O_RDWR)
            try:
                if _lock(descriptor, wait=False):
                    os.unlink(target.parent / name)
            finally:
                os.close(descriptor)
