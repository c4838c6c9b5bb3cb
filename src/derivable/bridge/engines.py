"""Engines made of functions: elementwise ones, functions of tensors, and one engine after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import numpy as np

from derivable.algebra.expr.emit_arrays import compile_torch
from derivable.algebra.expr.types import FLOATS
from derivable.algebra.monoid import TypedFunction
from derivable.bridge.protocol import Engine, Functions, Shape
from derivable.device.cpu.memory import empty


class Elementwise(Engine):
    """A function of one element, given by its components, arrays of one shape.

    others  the arrays of its other operands, that are constant
    """

    def __init__(self, function: TypedFunction, others: Sequence[np.ndarray] = ()):
        self.function, self.others = function, tuple(others)
        arguments = function.operands[0]
        self.leaves, self.num_results = len(arguments), len(function.values)
        self.float_leaves = tuple(k for k, argument in enumerate(arguments) if argument.dtype in FLOATS)
        self.float_results = tuple(k for k, value in enumerate(function.values) if value.dtype in FLOATS)

    def __str__(self) -> str:
        return str(self.function)

    @property
    def is_identity(self) -> bool:
        return self.function.values == self.function.operands[0]

    @cached_property
    def dual(self) -> Engine:  # type: ignore[override]
        return Elementwise(self.function.dual, self.others)

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        return [shapes[0]] * self.num_results

    def result_dtypes(self, dtypes: Sequence[Any]) -> Sequence[Any]:
        import torch

        return [getattr(torch, value.dtype) for value in self.function.values]

    def apply(self, structure: Any, operands: Sequence[Any], *, on_device: bool = False) -> list[Any]:
        if on_device:
            return self._run(self.function.values, self.function.operands, operands)
        with np.errstate(all="ignore"):
            found = self.function.apply(operands, *([other] for other in self.others))
        return [_own(x, operands[0].shape) for x in found]

    def pull(
        self,
        structure: Any,
        adjoints: Sequence[Any],
        operands: Sequence[Any],
        results: Sequence[Any],
        kept: Sequence[Any] = (),
        *,
        on_device: bool = False,
    ) -> list[Any]:
        given = dict(zip(self.float_results, adjoints))
        nothing = operands[0].new_zeros(operands[0].shape) if on_device else np.zeros_like(operands[0])
        seeds = [nothing if given.get(k) is None else given[k] for k in range(self.num_results)]
        arguments, pulled = self.function.adjoints
        if on_device:
            found = self._run(pulled[0], (*self.function.operands, arguments), operands, seeds)
        else:
            with np.errstate(all="ignore"):
                found, *_ = self.function.apply_vjp(seeds, operands, *([other] for other in self.others))
        return [found[k] if on_device else _own(found[k], operands[0].shape) for k in self.float_leaves]

    def _run(self, exprs: Any, arguments: Any, operands: Sequence[Any], seeds: Sequence[Any] = ()) -> list[Any]:
        import torch

        others = [torch.as_tensor(x, device=operands[0].device).expand(operands[0].shape) for x in self.others]
        compute = compile_torch(tuple(exprs), tuple(argument for operand in arguments for argument in operand))
        return [x.to(operands[0].device).expand(operands[0].shape) for x in compute(*operands, *others, *seeds)]

    def elsewhere(self, library: str) -> Functions:
        if library != "torch":
            return super().elsewhere(library)
        return partial(self.apply, on_device=True), partial(self.pull, on_device=True)


def _own(array: Any, shape: Shape) -> np.ndarray:
    """A copy, since an elementwise function may give its operand as it stands."""
    found = empty(shape, np.asarray(array).dtype)
    found[...] = array
    return found


class Chain(Engine):
    """Engines one after the other, the later ones of one group; float results of each are the float leaves of the next.

    What goes from one to the next is kept for the vjp.
    """

    def __init__(self, *parts: Engine):
        self.parts = parts
        first, last = parts[0], parts[-1]
        self.groups, self.leaves, self.float_leaves = first.groups, first.leaves, first.float_leaves
        self.num_results, self.float_results = last.num_results, last.float_results
        if any(not part.float_operands for part in parts) or not last.float_results:
            self.float_leaves = self.float_results = self.float_operands = ()

    def __str__(self) -> str:
        return ", then ".join(map(str, self.parts))

    @cached_property
    def dual(self) -> Engine:  # type: ignore[override]
        return Chain(*(part.dual for part in self.parts))

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        found = list(shapes)
        for part in self.parts:
            found = part.result_shapes(structure_shape, found)
        return found

    def result_dtypes(self, dtypes: Sequence[Any]) -> Sequence[Any]:
        for part in self.parts:
            dtypes = part.result_dtypes(dtypes)
        return dtypes

    def apply(self, structure: Any, operands: Sequence[Any]) -> list[Any]:
        return _all(self._applies, structure, operands)[-1]

    def apply_keeping(self, structure: Any, operands: Sequence[Any], *, whole: bool = False) -> tuple[list, list]:
        *between, results = _all(self._applies, structure, operands)
        return results, [array for part in between for array in part]

    def pull(
        self,
        structure: Any,
        adjoints: Sequence[Any],
        operands: Sequence[Any],
        results: Sequence[Any],
        kept: Sequence[Any] = (),
    ) -> list[Any]:
        rest = iter(kept)
        if kept:
            between = [[next(rest) for _ in range(part.num_results)] for part in self.parts[:-1]]
        else:
            between = _all(self._applies, structure, operands)[:-1]
        return _back([part.pull for part in self.parts], between, structure, adjoints, operands, results)

    def elsewhere(self, library: str) -> Functions:
        applies, pulls = zip(*(part.elsewhere(library) for part in self.parts))

        def pull(structure: Any, adjoints: Any, operands: Any, results: Any) -> list[Any]:
            between = _all(applies, structure, operands)[:-1]
            return _back(pulls, between, structure, adjoints, operands, results)

        return (lambda structure, operands: _all(applies, structure, operands)[-1]), pull

    @property
    def _applies(self) -> list[Callable]:
        return [part.apply for part in self.parts]


def _all(applies: Sequence[Callable], structure: Any, operands: Sequence[Any]) -> list[list[Any]]:
    """What each function makes of what the one before it made."""
    found = [list(operands)]
    for apply in applies:
        found.append(apply(structure, found[-1]))
    return found[1:]


def _back(pulls: Sequence[Callable], between: Any, structure, adjoints, operands, results) -> list[Any]:
    found = [operands, *between, results]
    for k in range(len(pulls) - 1, -1, -1):
        adjoints = pulls[k](structure, adjoints, found[k], found[k + 1])
    return list(adjoints)


class TensorFunction(Engine):
    """A function of tensors to a tuple of tensors that torch differentiates to any order.

    It is for where autograd alone is not enough: inside torch.func's transformations if the function decides on values,
    and as one node of a compiled graph.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., tuple],
        leaves: int,
        float_leaves: tuple[int, ...],
        shapes: Callable[[Sequence[Shape]], list[Shape]],
    ):
        self.name, self.function, self.leaves, self.float_leaves, self.shapes = (
            name,
            function,
            leaves,
            float_leaves,
            shapes,
        )

    def __str__(self) -> str:
        return self.name

    @cached_property
    def num_results(self) -> int:  # type: ignore[override]
        return len(self.shapes([()] * self.leaves))

    @cached_property
    def float_results(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(range(self.num_results))

    @cached_property
    def dual(self) -> Engine:  # type: ignore[override]
        leaves, floats = self.leaves, self.float_leaves

        def function(*tensors: Any) -> tuple:
            """Values and tangents; these are the derivative of the vjp, which is linear in the adjoints."""
            import torch

            with _recording():
                given = [x.view_as(x) if x.requires_grad else x.detach() for x in tensors[:leaves]]
                wanted = [given[k] if given[k].requires_grad else given[k].requires_grad_() for k in floats]
                made = self.function(*given)
                seeds = [torch.zeros_like(x, requires_grad=True) for x in made]
                tangents = _vjp(_vjp(made, wanted, seeds), seeds, tensors[leaves:])
            return *made, *tangents

        both = (*floats, *range(leaves, leaves + len(floats)))
        return TensorFunction(
            f"{self} with tangents", function, leaves + len(floats), both, lambda s: 2 * self.shapes(s)
        )

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        return self.shapes(shapes)

    def result_dtypes(self, dtypes: Sequence[Any]) -> Sequence[Any]:
        return [dtypes[self.float_leaves[0]]] * self.num_results

    def apply(self, structure: Any, operands: Sequence[Any]) -> list[Any]:
        import torch

        return [result.numpy() for result in self._called(None, [torch.as_tensor(x) for x in operands])]

    def pull(
        self,
        structure: Any,
        adjoints: Sequence[Any],
        operands: Sequence[Any],
        results: Sequence[Any],
        kept: Sequence[Any] = (),
    ) -> list[Any]:
        import torch

        seeds = [None if seed is None else torch.as_tensor(seed) for seed in adjoints]
        return [one.numpy() for one in self._pulled(None, seeds, [torch.as_tensor(x) for x in operands], ())]

    def elsewhere(self, library: str) -> Functions:
        return (self._called, self._pulled) if library == "torch" else super().elsewhere(library)

    def _called(self, structure: Any, tensors: Sequence[Any]) -> list[Any]:
        return [result.detach() for result in self.function(*(x.detach() for x in tensors))]

    def _pulled(self, structure: Any, seeds: Sequence[Any], tensors: Sequence[Any], results: Any) -> list[Any]:
        with _recording():
            given = [x.detach().requires_grad_(k in self.float_leaves) for k, x in enumerate(tensors)]
            made = self.function(*given)
            live = [(one, seed) for one, seed in zip(made, seeds) if seed is not None]
            wanted = [given[k] for k in self.float_leaves]
            return [x.detach() for x in _vjp([one for one, _ in live], wanted, [seed for _, seed in live])]


@contextmanager
def _recording() -> Iterator[None]:
    """Autograd records, also in the implementation of an operator, below the place where it does otherwise."""
    import torch

    key = torch._C.DispatchKey.AutogradFunctionality
    with torch._C._SetExcludeDispatchKeyGuard(key, False), torch.enable_grad():
        yield


def _vjp(made: Sequence[Any], wanted: Sequence[Any], seeds: Sequence[Any]) -> Sequence[Any]:
    """Adjoints of tensors, with a graph of their own if one is wanted."""
    import torch

    live = [(one, seed) for one, seed in zip(made, seeds) if one.requires_grad]
    if not live:
        return [torch.zeros_like(x) for x in wanted]
    made, seeds = zip(*live)
    return torch.autograd.grad(
        made, wanted, seeds, create_graph=torch.is_grad_enabled(), allow_unused=True, materialize_grads=True
    )
