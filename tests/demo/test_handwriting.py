"""The images: real files read, splits that share no image, damaged files explained."""

import gzip
import struct

import numpy as np
import pytest

from data import data_path
from derivable.core.diagnostics import DomainError, ParseError, ShapeError
from derivable_demos.handwriting import mnist, scikit_digits


def test_scikit_digits_are_split_by_image():
    data = scikit_digits(seed=3)
    assert data.train_images.shape == (1438, 8, 8)
    assert data.test_images.shape == (359, 8, 8)
    assert data.train_images.dtype == np.float32
    assert 0 <= data.train_images.min() < data.train_images.max() <= 1
    train = {image.tobytes() for image in data.train_images}
    assert not train & {image.tobytes() for image in data.test_images}
    assert set(data.train_labels) == set(data.test_labels) == set(range(10))
    other = scikit_digits(seed=4)
    assert (other.test_images != data.test_images).any()
    np.testing.assert_array_equal(scikit_digits(seed=3).test_images, data.test_images)


def test_subset():
    data = scikit_digits(0)
    part = data.subset(100)
    assert len(part.train_images) == len(part.train_labels) == 100
    assert part.test_images is data.test_images
    with pytest.raises(DomainError, match="1438 to train on"):
        data.subset(2000)


def test_mnist():
    data = mnist(data_path("mnist"), seed=0)
    assert data.train_images.shape == (60000, 28, 28)
    assert data.test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert np.bincount(data.train_labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.train_images.mean() == pytest.approx(0.1307, abs=1e-4)


def write_idx(path, array, compress=False):
    content = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if compress else content)


def write_mnist(folder, num_train=6, num_test=3):
    generator = np.random.default_rng(0)
    for half, count, compress in (("train", num_train, False), ("t10k", num_test, True)):
        suffix = ".gz" if compress else ""
        images = generator.integers(0, 256, (count, 28, 28), np.uint8)
        write_idx(folder / f"{half}-images-idx3-ubyte{suffix}", images, compress)
        write_idx(folder / f"{half}-labels-idx1-ubyte{suffix}", np.arange(count, dtype=np.uint8), compress)


def test_gzipped_or_not(tmp_path):
    write_mnist(tmp_path)
    data = mnist(tmp_path, seed=0)
    assert sorted(data.train_labels) == list(range(6))
    assert data.test_labels.tolist() == [0, 1, 2]


def test_damaged_files(tmp_path):
    with pytest.raises(ParseError, match="no file train-images-idx3-ubyte"):
        mnist(tmp_path, 0)
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ParseError, match=r"promises 6 x 28 x 28 = 4704 bytes, but 4703 follow"):
        mnist(tmp_path, 0)
    path.write_bytes(b"\x89PNG" + whole)
    with pytest.raises(ParseError, match="not an IDX file"):
        mnist(tmp_path, 0)
    path.write_bytes(whole)
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.zeros(5, np.uint8))
    with pytest.raises(ShapeError, match="6 images but 5 labels"):
        mnist(tmp_path, 0)
