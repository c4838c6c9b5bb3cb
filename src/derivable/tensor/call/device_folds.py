"""Folds of programs on a device that has Triton: one kernel each, and one for each derivative, of any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from derivable.algebra.semiring import Semiring
from derivable.bridge.torch import dtype_name, within_memory
from derivable.bridge.torch_columns import Torch
from derivable.core.diagnostics import UnsupportedError
from derivable.device.cuda.compiler import Launches, are_aligned, current, refusal
from derivable.kernel import nodes as k
from derivable.kernel.emit_triton import compile_triton
from derivable.parallel.program import nodes as n
from derivable.parallel.program.execute import Prepared
from derivable.parallel.program.nodes import Column
from derivable.tensor.lower.segment_folds import SegmentFold, folds_of

# Numbers that are folded from which on a kernel of its own is compiled.
FEWEST = 1 << 13
_WIDEST = 128
_ANY_NUMBER = ("blocks", "tiles", "size", "longest")


def has_kernels(device: torch.device) -> bool:
    return refusal(device) is None


@lru_cache(256)
def _compiled(kernel: k.Kernel, warps: int) -> Any:
    return compile_triton(kernel, warps, _ANY_NUMBER)


class FoldedProgram:
    """A program whose folds are kernels; called with columns, by name, as a `Prepared` is."""

    def __init__(self, column: Column, semiring: Semiring, like: torch.Tensor):
        steps, result = folds_of(column, semiring, dtype_name(like))  # type: ignore[arg-type]
        self.steps = [(s.name, DeviceFold(s.fold, like.device), _prepared(s.operands)) for s in steps]
        self.result = _prepared([result])

    @cached_property
    def is_worthwhile(self) -> bool:
        folds = [fold for _, fold, _ in self.steps]
        is_large = any(fold.num_terms >= FEWEST for fold in folds) and all(fold.fits for fold in folds)
        return is_large and _are_printed(folds)

    @cached_property
    def is_differentiable(self) -> bool:
        folds = [fold for _, fold, _ in self.steps]
        is_sum = all(fold.fold.is_differentiable for fold in folds)
        return is_sum and _are_printed([pulled for fold in folds for pulled in fold.pulled.values()])

    def __call__(self, given: Mapping[str, Sequence[torch.Tensor]], arrays: Torch) -> list[torch.Tensor]:
        values = dict(given)
        for name, fold, operands in self.steps:
            values[name] = (fold.recorded(operands(values, arrays)),)
        return self.result(values, arrays)


def _prepared(columns: Sequence[Column]) -> Callable[[Mapping[str, Sequence[torch.Tensor]], Torch], list[torch.Tensor]]:
    """What computes columns; those that are given take no run of a program."""
    given = [(column.node.name, column.number) for column in columns if isinstance(column.node, n.Given)]
    if len(given) < len(columns):
        return Prepared(columns)
    return lambda values, arrays: [values[name][number] for name, number in given]


def _are_printed(folds: Sequence[DeviceFold]) -> bool:
    """Whether Triton has all operations of folds."""
    try:
        for fold in folds:
            fold.launch  # noqa: B018
    except UnsupportedError:
        return False
    return True


class DeviceFold:
    """A fold whose indices are on a device."""

    def __init__(self, fold: SegmentFold, device: torch.device):
        self.fold, self.device = fold, device

    @property
    def num_terms(self) -> int:
        return int(self.fold.offsets[-1]) * (self.fold.lanes or 1)

    @property
    def fits(self) -> bool:
        """Whether 32 bits number the rows."""
        most = np.iinfo(np.int32).max
        return int(self.fold.offsets[-1]) < most and all((one.size or 0) < most for one in self.fold.operands)

    @cached_property
    def pulled(self) -> dict[int, DeviceFold]:
        return {number: DeviceFold(fold, self.device) for number, fold in self.fold.pulled.items()}

    @cached_property
    def _parts(self) -> tuple[DeviceFold, DeviceFold] | None:
        parts = self.fold.parts
        return None if parts is None else (DeviceFold(parts[0], self.device), DeviceFold(parts[1], self.device))

    @cached_property
    def _offsets(self) -> torch.Tensor:
        return torch.from_numpy(self.fold.offsets).to(self.device)

    @cached_property
    def _rows(self) -> list[torch.Tensor | None]:
        rows = [one.rows for one in self.fold.operands]
        return [None if x is None else torch.from_numpy(x.astype(np.int32)).to(self.device) for x in rows]

    @cached_property
    def launch(self) -> Any:
        """What launches the kernel. Raises UnsupportedError for operations that Triton does not have."""
        return Launches(_compiled(self.fold.kernel(self._tile[0]), self._tile[1]))

    def __call__(self, operands: Sequence[torch.Tensor]) -> torch.Tensor:
        if self._parts is not None:
            first, second = self._parts
            return second([first(operands)])
        fold, lanes = self.fold, self.fold.lanes
        shape = (fold.size,) if lanes is None or fold.is_summed else (fold.size, lanes)
        found = operands[0].new_empty(shape)
        if not found.numel():
            return found
        arguments: list[torch.Tensor] = [self._offsets]
        for rows, operand in zip(self._rows, operands):
            arguments += [operand.contiguous()] if rows is None else [rows, operand.contiguous()]
        arguments.append(found)
        with current(found.device):
            self.launch(self._numbers[:2], are_aligned(arguments), *self._numbers, *arguments)
        return found

    def recorded(self, operands: Sequence[torch.Tensor]) -> torch.Tensor:
        """The fold, with its derivatives where an operand has some."""
        if torch.is_grad_enabled() and any(operand.requires_grad for operand in operands):
            return _Folded.apply(self, *operands)
        with within_memory("a fold", operands):
            return self(operands)

    @cached_property
    def _numbers(self) -> tuple[int, ...]:
        """Programs of both axes, rows of the result, terms of the longest one, lanes."""
        fold, tile = self.fold, self._tile[0]
        tiles = 1 if fold.lanes is None or fold.is_summed else -(-fold.lanes // tile)
        blocks = -(-fold.size // tile) if fold.form == "segments" else fold.size
        return blocks, tiles, fold.size, fold.longest, fold.lanes or 1

    @cached_property
    def _tile(self) -> tuple[int, int]:
        """The lanes of a program, and its warps."""
        fold = self.fold
        if fold.lanes is not None:
            lanes = min(_WIDEST, 1 << (fold.lanes - 1).bit_length())
        elif fold.form == "items" and int(fold.offsets[-1]) < 96 * fold.size:
            lanes = 32
        else:
            lanes = _WIDEST
        return lanes, max(1, lanes // 32)


class _Folded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fold: DeviceFold, *operands: torch.Tensor) -> torch.Tensor:
        ctx.fold = fold
        ctx.save_for_backward(*operands)
        with within_memory("a fold", operands):
            return fold(operands)

    @staticmethod
    def backward(ctx: Any, *adjoints: torch.Tensor) -> Any:  # type: ignore[override]
        operands, found = ctx.saved_tensors, [None] * len(ctx.saved_tensors)
        for number, fold in ctx.fold.pulled.items():
            if ctx.needs_input_grad[number + 1]:
                found[number] = _Folded.apply(fold, *operands, *adjoints).reshape(operands[number].shape)
        return None, *found
