"""Which package of Python's standard library is a piece of source text from? A linear model over a million features.

    python examples/source_packages.py [--pieces N] [--steps 20] [--columns 1048576]

The texts ship with Python. A piece is ten lines; its features are its words and pairs of words, hashed into 2^20
columns. As a dense array the pieces would need more memory than most machines have. `dv.tensor.Function` computes with
the nonzeros alone, forwards and backwards, and is used like any other function in PyTorch. Whole files are held out, so
that no piece has a neighbour in the training set.
"""

import argparse
import itertools
import re
import sysconfig
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import scipy.sparse
import torch

import derivable as dv

LINES = 10
SCORES = dv.tensor.parse(
    "sum(<i, piece> in X) { i -> sum(<j, x> in piece) sum(<k, w> in W(j)) { k -> x * w } }",
    {"X": dv.tensor.matrix, "W": dv.tensor.matrix},
)


def files_of_packages() -> tuple[list[str], list[tuple[int, Path]]]:
    """(names, (package, file) of each file) of the packages with at least 20 files."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found: dict[str, list[Path]] = {}
    for path in sorted(library.glob("*/**/*.py")):
        package = path.relative_to(library).parts[0]
        # Tests are about all the other packages.
        if package not in ("test", "site-packages", "dist-packages"):
            found.setdefault(package, []).append(path)
    names = [package for package, paths in found.items() if len(paths) >= 20]
    return names, [(k, path) for k, name in enumerate(names) for path in found[name]]


def pieces_of(path: Path) -> list[str]:
    lines = path.read_text("utf-8", "replace").splitlines()
    pieces = ("\n".join(lines[start : start + LINES]) for start in range(0, len(lines), LINES))
    return [piece for piece in pieces if piece.strip()]


def features(piece: str, columns: int) -> np.ndarray:
    words = re.findall(r"\w+|[^\w\s]", piece)
    grams = {*words, *(f"{first} {second}" for first, second in itertools.pairwise(words))}
    return np.unique([zlib.crc32(gram.encode()) % columns for gram in grams])


def matrix_of(pieces: list[str], columns: int) -> scipy.sparse.csr_array:
    """[piece, column], where every row has the length 1."""
    rows = [features(piece, columns) for piece in pieces]
    counts = np.array([len(row) for row in rows])
    values = np.repeat(counts**-0.5, counts).astype(np.float32)
    offsets = np.append(0, counts.cumsum())
    return scipy.sparse.csr_array((values, np.concatenate(rows), offsets), shape=(len(rows), columns))


def read(files: list[tuple[int, Path]], limit: int | None, columns: int) -> tuple[scipy.sparse.csr_array, torch.Tensor]:
    """(features [piece, column], package [piece]) of the first `limit` pieces of each file."""
    pieces = [(package, piece) for package, path in files for piece in pieces_of(path)[:limit]]
    packages = torch.tensor([package for package, _ in pieces])
    return matrix_of([piece for _, piece in pieces], columns), packages


def accuracy(scores: torch.Tensor, packages: torch.Tensor) -> float:
    return (scores.argmax(1) == packages).float().mean().item()


def main(limit: int | None = None, steps: int = 20, columns: int = 1 << 20) -> float:
    names, files = files_of_packages()
    train, packages = read([file for k, file in enumerate(files) if k % 5], limit, columns)
    held_out, held_out_packages = read(files[::5], limit, columns)
    dense = train.shape[0] * train.shape[1] * 4
    print(f"{train.shape[0]:,} pieces of {len(names)} packages, {columns:,} columns, {train.nnz:,} entries")
    print(f"as a dense array: {dense / 1e9:.3g} GB; as entries: {8 * train.nnz / 1e6:.3g} MB")

    weights = torch.zeros(columns, len(names), requires_grad=True)
    bias = torch.zeros(len(names), requires_grad=True)
    optimiser = torch.optim.Adam([weights, bias], lr=0.1)
    scores = dv.tensor.Function(SCORES, {"X": train}, output="numpy")
    start = time.perf_counter()
    for step in range(steps):
        loss = torch.nn.functional.cross_entropy(scores(W=weights) + bias, packages)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.3f}, {time.perf_counter() - start:.1f} s")

    with torch.no_grad():
        found = dv.tensor.Function(SCORES, {"X": held_out}, output="numpy")(W=weights) + bias
    commonest, count = Counter(held_out_packages.tolist()).most_common(1)[0]
    print(f"always `{names[commonest]}`: {count / len(held_out_packages):.1%} of the pieces of held-out files")
    print(f"the model: {accuracy(found, held_out_packages):.1%}")
    return accuracy(found, held_out_packages)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pieces", type=int, help="pieces of a file, at most")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--columns", type=int, default=1 << 20)
    options = parser.parse_args()
    main(options.pieces, options.steps, options.columns)
