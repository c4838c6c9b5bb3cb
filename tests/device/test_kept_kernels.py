"""Launches of kernels that are kept, on a device that is none."""

from contextlib import nullcontext
from types import SimpleNamespace

import torch

from derivable.device.cuda import compiler


class Recorded:
    """What stands for a function of Triton: it counts looks at arguments, and gives kernels that count launches."""

    def __init__(self):
        self.looks, self.launched = [], []

    def __getitem__(self, programs):
        def look(*arguments, num_warps):
            self.looks.append((programs, arguments, num_warps))
            return Kernel(self.launched)

        return look


class Kernel:
    def __init__(self, launched):
        self.launched = launched

    def __getitem__(self, programs):
        return lambda *arguments: self.launched.append((programs, arguments))


def tensor(dtype=torch.int32, address=64, device="cuda:0"):
    return SimpleNamespace(dtype=dtype, device=torch.device(device), data_ptr=lambda: address)


def test_a_kernel_is_kept_for_what_it_was_compiled_for(monkeypatch):
    monkeypatch.setattr(compiler, "current", lambda device: nullcontext())
    function = Recorded()
    launch = compiler.KeptKernels(function, warps=2)
    x = tensor()
    launch((3, 2), x, 5, 128, True)
    assert function.looks == [((3, 2), (x, 5, 128, True), 2)]
    launch((4,), x, 7, 128, True)
    launch((4,), tensor(address=128), 1 << 30, 128, True)
    assert len(function.looks) == 1
    assert [programs for programs, _ in function.launched] == [(4, 1, 1)] * 2
    assert function.launched[0][1] == (x, 7, 128, True)
    others = tensor(torch.int64), tensor(address=68), tensor(device="cuda:1")
    for arguments in (*((other, 5, 128, True) for other in others), (x, 1 << 31, 128, True), (x, 5, 128, False)):
        launch((1,), *arguments)
    assert len(function.looks) == 6


def test_the_interpreter_gives_no_kernel():
    function = Recorded()
    launch = compiler.KeptKernels(function)
    for _ in range(2):
        launch((1,), tensor(device="cpu"), 5)
    assert len(function.looks) == 2
    assert not launch.kept
