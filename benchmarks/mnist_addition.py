"""MNIST addition at batch 128: seconds of an epoch, the share of them in the logic, accuracy after one epoch.

    python benchmarks/mnist_addition.py MNIST_DIR [--batches 20] [--markdown FILE]

MNIST_DIR holds the four IDX files. Numbers of one, two and three digits, in both encodings of the demo. The
symbolic share is that of the training steps actually run, forward and backward of the logic layer, after one
warm-up step; an epoch's seconds are scaled from the steps run if --batches cuts it short.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from harness import machine, peak_memory_bytes, table

from derivable_demos.digits import LearnedDigits, Settings, learn
from derivable_demos.handwriting import mnist

CASES = [(1, "sums"), (1, "columns"), (2, "sums"), (2, "columns"), (3, "sums"), (3, "columns")]
BATCH = 128


def row(learned: LearnedDigits) -> list[str]:
    steps_run = len(learned.losses)
    steps = -(-learned.num_train_pairs // BATCH)
    whole = steps_run == steps
    return [
        str(learned.settings.num_digits),
        learned.settings.encoding,
        learned.circuit,
        f"{learned.preparation_seconds:.1f}",
        f"{learned.training_seconds * steps / steps_run:.1f}{'' if whole else ' (scaled)'}",
        f"{1000 * learned.symbolic_seconds / steps_run:.1f}",
        f"{100 * learned.symbolic_seconds / learned.training_seconds:.1f} %",
        f"{100 * learned.digit_accuracy:.1f} %" if whole else "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder with MNIST's IDX files")
    parser.add_argument("--batches", type=int, help="stop each case after this many steps; default: a whole epoch")
    parser.add_argument("--cases", default="all", help="such as 1sums,3columns; default all")
    parser.add_argument("--markdown", type=Path, help="also write the table there")
    options = parser.parse_args()
    data = mnist(options.data, seed=0)
    wanted = None if options.cases == "all" else options.cases.split(",")
    rows = []
    for num_digits, encoding in CASES:
        if wanted is not None and f"{num_digits}{encoding}" not in wanted:
            continue
        began = time.perf_counter()
        settings = Settings(
            num_digits=num_digits, encoding=encoding, epochs=1, batch_size=BATCH, max_batches=options.batches
        )
        rows.append(row(learn(data, settings)))
        print(" | ".join(rows[-1]), f"({time.perf_counter() - began:.0f} s)", flush=True)
    columns = [
        "digits",
        "program",
        "circuit",
        "compile s",
        "epoch s",
        "logic ms a step",
        "logic share",
        "test digits right",
    ]
    memory = peak_memory_bytes() / 2**30
    text = f"{table(columns, rows)}\n\n{machine()}; peak memory {memory:.1f} GiB\n"
    print(text)
    if options.markdown:
        options.markdown.write_text(text)


if __name__ == "__main__":
    main()
