"""Vector-symbolic operations beside torch-hd's, and beside the time that their bytes take to move.

    pip install torch-hd==5.8.4 && python benchmarks/vsa.py
    python benchmarks/vsa.py --only bundle --rounds 31

Both libraries run in one process on one thread, in turn, on the same vectors of 10,000 places; times are of the
processor, so that other programs on the machine count little. The bound is what the operands and the result take to
move at the speed of a copy. A ratio below one says that derivable is the faster one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import torch
from harness import paired

import derivable as dv

MODELS = {
    "fhrr": ("FHRR", torch.complex64),
    "map": ("MAP", torch.float32),
    "bsc": ("BSC", torch.bool),
    "hrr": ("HRR", torch.float32),
}
DIMENSION, ITEMS = 10_000, 20
Call = Callable[[], torch.Tensor]


def cases(model: str, batch: int) -> Iterator[tuple[str, Call, Call, int]]:
    """(name, ours, torch-hd's, bytes that are read)"""
    import torchhd

    kind, dtype = MODELS[model]
    x, y = (torchhd.random(batch, DIMENSION, kind, dtype=dtype) for _ in range(2))
    many = torchhd.random(ITEMS * batch, DIMENSION, kind, dtype=dtype).reshape(batch, ITEMS, DIMENSION)
    a, b, items = (tensor.as_subclass(torch.Tensor) for tensor in (x, y, many))
    size = a.nbytes
    vsa = dv.vsa
    yield "bind", lambda: vsa.bind(a, b, model=model), lambda: torchhd.bind(x, y), 2 * size
    yield (
        "unbind",
        lambda: vsa.unbind(a, b, model=model),
        lambda: torchhd.bind(x, torchhd.inverse(y)),
        2 * size,
    )
    yield "bundle of 2", lambda: vsa.bundle(a, b, model=model), lambda: torchhd.bundle(x, y), 2 * size
    yield "bundle of 20", lambda: vsa.bundle(items, model=model), lambda: torchhd.multibundle(many), ITEMS * size
    yield "permute", lambda: vsa.permute(a, model=model), lambda: torchhd.permute(x), size
    yield "normalise", lambda: vsa.normalise(a, model=model), lambda: torchhd.normalize(x), size
    book, codebook = many[0], items[0]
    yield (
        "similarities of 20",
        lambda: vsa.similarities(a, codebook, model=model),
        lambda: torchhd.cosine_similarity(x, book),
        size + codebook.nbytes,
    )


def copy_seconds_per_byte() -> float:
    """Of a copy that stays in the cache, which vectors of a benchmark's loop do."""
    source = torch.ones(1 << 20, dtype=torch.uint8)
    target = torch.empty_like(source)
    timing = paired({"copy": lambda: target.copy_(source)}, clock=time.thread_time)
    return timing.best("copy") / (2 * source.nbytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="operations whose name has this in it")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rate = copy_seconds_per_byte()
    print("| model | operation | batch | bound, us | derivable, us | torch-hd, us | ratio |")
    print("|---|---|---|---|---|---|---|")
    for model in MODELS:
        for batch in (1, 100):
            for name, ours, theirs, read in cases(model, batch):
                if options.only not in name:
                    continue
                timing = paired(
                    {"ours": ours, "theirs": theirs},
                    rounds=options.rounds,
                    slice_seconds=0.02,
                    clock=time.thread_time,
                )
                bound = rate * (read + ours().nbytes)
                shown = [bound, timing.median("ours"), timing.median("theirs")]
                numbers = " | ".join(f"{1e6 * seconds:,.1f}" for seconds in shown)
                ratio = timing.ratio("ours", "theirs")
                print(f"| {model} | {name} | {batch} | {numbers} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
