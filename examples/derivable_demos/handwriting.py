"""Handwritten digits: scikit-learn's own 8x8 scans, or MNIST's IDX files, split by image into train and test."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from derivable.core.diagnostics import DomainError, ParseError, ShapeError
from derivable.core.files import read_bytes
from derivable.core.lazy import optional_module

TEST_SHARE = 0.2


@dataclass(frozen=True)
class Handwriting:
    """Images and what they show. No image is in both halves.

    train_images, test_images  [image, height, width] float32 in [0, 1], ink is 1
    train_labels, test_labels  [image] int64, 0 to 9
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    def subset(self, num_train: int) -> Handwriting:
        """The first `num_train` training images; the test half stays whole.

        Raises DomainError if there are fewer.
        """
        if not 1 <= num_train <= len(self.train_images):
            raise DomainError(
                f"a subset of {num_train} images was asked for; {self.name} has {len(self.train_images)} to train on",
                hint=f"ask for 1 to {len(self.train_images)}",
            )
        return Handwriting(
            self.name, self.train_images[:num_train], self.train_labels[:num_train], self.test_images, self.test_labels
        )


def scikit_digits(seed: int) -> Handwriting:
    """scikit-learn's `load_digits`: 1,797 real scans of 8x8 pixels (UCI optical digits), a fifth kept for testing."""
    data = optional_module("sklearn.datasets", "scikit-learn", "demo").load_digits()
    images = (data.images / 16.0).astype(np.float32)
    labels = data.target.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(images))
    test = round(TEST_SHARE * len(images))
    return Handwriting(
        "scikit-learn digits", images[order[test:]], labels[order[test:]], images[order[:test]], labels[order[:test]]
    )


def mnist(directory: str | os.PathLike, seed: int) -> Handwriting:
    """MNIST from the four classic IDX files in `directory`, gzipped or not; the published split, train shuffled."""
    folder = Path(directory)
    halves = []
    for half in ("train", "t10k"):
        images = _idx(_find(folder, f"{half}-images", "idx3"), 3)
        labels = _idx(_find(folder, f"{half}-labels", "idx1"), 1)
        if len(images) != len(labels):
            raise ShapeError(
                f"{len(images)} images but {len(labels)} labels in the {half} half",
                source=os.fspath(folder),
                hint="the two files do not belong together",
            )
        halves.append(((images / np.float32(255)).astype(np.float32), labels.astype(np.int64)))
    (train_images, train_labels), (test_images, test_labels) = halves
    order = np.random.default_rng(seed).permutation(len(train_images))
    return Handwriting("MNIST", train_images[order], train_labels[order], test_images, test_labels)


def _find(folder: Path, stem: str, kind: str) -> Path:
    names = [f"{stem}{dot}{kind}-ubyte{suffix}" for dot in ("-", ".") for suffix in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise ParseError(
        f"no file {names[0]} or {names[1]}",
        source=os.fspath(folder),
        hint="give the folder that holds MNIST's four IDX files",
    )


def _idx(path: Path, dimensions: int) -> np.ndarray:
    """The array of an IDX file of unsigned bytes with the given number of dimensions.

    Layout: two zero bytes, the type (8: unsigned byte), the number of dimensions, each size as a
    big-endian uint32, then the data, last dimension fastest.
    """
    data = read_bytes(path)
    source = os.fspath(path)
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes((0, 0, 8, dimensions)):
        raise ParseError(
            f"not an IDX file of unsigned bytes in {dimensions} dimension{'s' * (dimensions > 1)}: "
            f"it starts with {data[:4].hex(' ') or 'nothing'}, not 00 00 08 0{dimensions}",
            source=source,
        )
    sizes = struct.unpack(f">{dimensions}I", data[4:header])
    expected = int(np.prod(sizes, dtype=object))
    if len(data) - header != expected:
        raise ParseError(
            f"the header promises {' x '.join(map(str, sizes))} = {expected} bytes, but {len(data) - header} follow",
            source=source,
            hint="fetch the file again; it was probably cut off",
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(sizes)
