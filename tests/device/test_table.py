import multiprocessing
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import derivable
from derivable.core.diagnostics import UnsupportedError
from derivable.parallel import dispatch as primitives
from derivable.parallel import reference, table
from derivable.parallel.table import PRIMITIVES


def test_every_row_is_offered_where_it_says():
    for row in PRIMITIVES.values():
        if row.name != "fold_levels":
            for device in ("reference", "cpu"):
                assert callable(row.function(device))


def test_explain_shows_the_table(capsys):
    text = derivable.device.explain()
    assert capsys.readouterr().out == ""  # like every other `explain`
    for name in PRIMITIVES:
        assert f"\n{name}" in "\n" + text
    assert "cuda       emitted for the operator in Triton: the totals of chunks" in text
    assert "cuda       refused: no CUDA kernel is written for it" in text
    assert "cuda       emitted for the semiring" in derivable.device.explain("fold_levels")
    assert "join" not in derivable.device.explain("scan")


def test_explain_says_what_a_call_gets():
    text = derivable.device.explain("scan", "add", np.arange(3.0))
    assert text.startswith("scan -> cpu (derivable.bridge.folds)")
    assert "because: NumPy arrays" in text
    assert "forward: lanes 8 in float64, guarded\n  backward: lanes 8 in float64, guarded" in text
    wide = derivable.device.explain("scan", "add", np.ones((3, 2)))
    assert "forward: row by row\n  backward: row by row" in wide
    segments = derivable.device.explain("segment_reduce", "max", np.ones(3, "float32"), [0, 3])
    assert "forward: lanes 16, guarded\n  backward: row by row" in segments
    exact = np.array([2**80], dtype=object)
    assert "scan -> reference" in derivable.device.explain("scan", "add", exact)
    assert "Python integers" in derivable.device.explain("scan", "add", exact)
    assert "chosen by name" in derivable.device.explain("scan", device="reference")


class OnDevice:
    """What the table sees of a tensor on another device."""

    def __init__(self, *shape, dtype="torch.float32"):
        self.shape, self.dtype, self.device = shape, dtype, SimpleNamespace(type="cuda")


def test_tensors_are_folded_where_they_are():
    choice = table.choose("scan", "add", OnDevice(10))
    assert (choice.device, choice.why) == ("cuda", "an array is on a CUDA device")
    assert choice.function is derivable.parallel.scan
    assert table.choose("reduce_by_index", OnDevice(3), "add", OnDevice(10), OnDevice(10)).device == "cuda"
    with pytest.raises(UnsupportedError, match="sort does not run on cuda"):
        table.choose("sort", (OnDevice(10),))
    text = derivable.device.explain("scan", "add", OnDevice(10**6))
    assert "forward: chunks of rows, 2048 rows a tile; totals of chunks, then prefixes" in text
    linear = derivable.parallel.operator(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), neutral=(1.0, 0.0))
    text = derivable.device.explain("scan", linear, (OnDevice(10**6, 64), OnDevice(10**6, 64)))
    assert "backward: chunks of rows, 64 columns a tile" in text
    text = derivable.device.explain("segment_reduce", "mul", OnDevice(10**6), OnDevice(5))
    assert "forward: chunks of rows, 1024 rows a tile" in text


def test_refusals_have_reasons():
    with pytest.raises(UnsupportedError, match="join does not run on cuda: no CUDA kernel"):
        table.choose("join", device="cuda")
    with pytest.raises(UnsupportedError, match="no device 'tpu'"):
        table.choose("scan", device="tpu")
    with pytest.raises(UnsupportedError, match="did you mean 'scan'"):
        table.choose("scam")
    with pytest.raises(UnsupportedError, match=r"fold_levels runs a plan.*\n.*Circuit\.evaluate"):
        table.choose("fold_levels", device="cpu")
    with pytest.raises(UnsupportedError, match="fold_levels runs a plan"):
        table.choose("fold_levels", device="cuda")
    with pytest.raises(AttributeError, match="no primitive"):
        _ = primitives.scam


def work(_=None):
    values = np.random.default_rng(0).normal(size=200_000)
    indices = np.arange(200_000) % 11
    total = primitives.reduce_by_index(np.zeros(11), "add", indices, values)
    order = primitives.sort((indices, values))[1]
    return float(total.sum()), int(order[:100].sum())


def check_child(queue):
    queue.put(work())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_kernels_run_in_child_processes(method):
    expected = work()
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    children = [context.Process(target=check_child, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    assert [queue.get(timeout=120) for _ in children] == [expected] * 2
    for child in children:
        child.join(60)
        assert child.exitcode == 0


def test_kernels_run_in_many_threads():
    expected = work()
    results = []
    workers = [threading.Thread(target=lambda: results.append(work())) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [expected] * 4


def test_kernels_run_in_data_loader_workers():
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, row):
            return torch.from_numpy(primitives.scan("add", np.full(70_000, row + 1.0)))[-1]

    assert primitives.scan("add", np.ones(3)).tolist() == [1, 2, 3]
    loaded = [batch.tolist() for batch in DataLoader(Rows(), batch_size=2, num_workers=2)]
    assert loaded == [[70_000.0, 140_000.0], [210_000.0, 280_000.0]]


def test_docstrings_come_from_the_reference():
    assert primitives.scan.__doc__ == reference.scan.__doc__
