"""Engines made of functions: elementwise ones, functions of tensors, and one engine after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra.expr.types import FLOATS
from derivable.algebra.typed import TypedFunction
from derivable.bridge.columns import OPERANDS, ColumnEngine
from derivable.bridge.protocol import Adjoints, Arrays, Engine, Functions, Shape
from derivable.device.cpu.memory import empty
from derivable.parallel.program import nodes as n
from derivable.parallel.program.execute import Prepared
from derivable.parallel.program.graph import Graph


class Elementwise(ColumnEngine):
    """A function of one element, given by its components, arrays of one shape.

    others  the arrays [n] of its other operands, which are constant along all axes but the last
    """

    def __init__(self, function: TypedFunction, others: Sequence[np.ndarray] = ()):
        self.function, self.others = function, tuple(others)
        arguments = function.operands[0]
        self.leaves, self.num_results = len(arguments), len(function.values)
        self.float_leaves = tuple(k for k, argument in enumerate(arguments) if argument.dtype in FLOATS)
        self.float_results = tuple(k for k, value in enumerate(function.values) if value.dtype in FLOATS)

    def __str__(self) -> str:
        return str(self.function)

    @cached_property
    def key(self) -> str:
        others = [(str(other.dtype), hashlib.sha256(other.tobytes()).hexdigest()) for other in self.others]
        return f"{self} {others}"

    @property
    def is_identity(self) -> bool:
        return self.function.values == self.function.operands[0]

    @cached_property
    def dual(self) -> Engine:  # type: ignore[override]
        return Elementwise(self.function.dual, self.others)

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        return [shapes[0]] * self.num_results

    def result_dtypes(self, dtypes: Sequence[Any]) -> Sequence[Any]:
        if isinstance(dtypes[0], np.dtype):
            return [np.dtype(value.dtype) for value in self.function.values]
        import torch

        return [getattr(torch, value.dtype) for value in self.function.values]

    @cached_property
    def program(self) -> Prepared:  # type: ignore[override]
        graph = Graph()
        given = graph(n.Given, OPERANDS, tuple(n.Type(argument.dtype) for argument in self.function.operands[0]))
        sizes = [n.Type(str(other.dtype), len(other)) for other in self.others]
        others = [graph.one(n.Constant, other, of) for other, of in zip(self.others, sizes)]
        size = sizes[0].size if sizes else given[0].size
        return Prepared(graph(n.Apply, n.Function.of(self.function.name, self.function), (*given, *others), size))

    # On the CPU the expressions alone, without a program around them.

    def apply(self, structure: Any, operands: Sequence[Any]) -> list[Any]:
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
    ) -> list[Any]:
        given = dict(zip(self.float_results, adjoints))
        nothing = np.zeros_like(operands[0])
        seeds = [nothing if given.get(k) is None else given[k] for k in range(self.num_results)]
        with np.errstate(all="ignore"):
            found, *_ = self.function.apply_vjp(seeds, operands, *([other] for other in self.others))
        return [_own(found[k], operands[0].shape) for k in self.float_leaves]


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
    def key(self) -> str:
        return ", then ".join(part.key for part in self.parts)

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

    def pull(self, structure: Any, adjoints: Adjoints, operands: Arrays, results: Arrays, kept: Arrays = ()) -> list:
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
    """A function of tensors to a tensor that torch differentiates, as one node of a graph: for a function that decides
    on values.

    shape  of the result, from those of the operands
    """

    num_results, float_results = 1, (0,)  # type: ignore[assignment]

    def __init__(
        self, name: str, function: Callable, leaves: int, float_leaves: tuple[int, ...], shape: Callable[..., Shape]
    ):
        self.name, self.function, self.shape = name, function, shape
        self.leaves, self.float_leaves = leaves, float_leaves

    def __str__(self) -> str:
        return self.name

    @cached_property
    def dual(self) -> Engine:  # type: ignore[override]
        return _DualFunction(self)

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        return [self.shape(shapes)] * self.num_results

    def result_dtypes(self, dtypes: Sequence[Any]) -> Sequence[Any]:
        return [dtypes[self.float_leaves[0]]] * self.num_results

    def apply(self, structure: Any, operands: Arrays) -> list[Any]:
        return [result.numpy() for result in self._called(None, _tensors(operands))]

    def pull(self, structure: Any, adjoints: Adjoints, operands: Arrays, results: Arrays, kept: Arrays = ()) -> list:
        seeds = [None if adjoint is None else _tensors([adjoint])[0] for adjoint in adjoints]
        return [one.numpy() for one in self._pulled(None, seeds, _tensors(operands), ())]

    def elsewhere(self, library: str) -> Functions:
        return (self._called, self._pulled) if library == "torch" else super().elsewhere(library)

    def results(self, *tensors: Any) -> tuple[Any, ...]:
        """What torch differentiates."""
        return (self.function(*tensors),)

    def _called(self, structure: Any, tensors: Sequence[Any]) -> list[Any]:
        from derivable.bridge.torch_parts import recording

        with recording():
            return [made.detach() for made in self.results(*(x.detach() for x in tensors))]

    def _pulled(self, structure: Any, seeds: Sequence[Any], tensors: Sequence[Any], results: Any) -> list[Any]:
        import torch

        from derivable.bridge.torch_parts import recording

        with recording():
            given = [x.detach().requires_grad_(k in self.float_leaves) for k, x in enumerate(tensors)]
            wanted = [given[k] for k in self.float_leaves]
            made = [(x, seed) for x, seed in zip(self.results(*given), seeds) if seed is not None and x.requires_grad]
            if not made:
                return [torch.zeros_like(x) for x in wanted]
            options: Any = {"allow_unused": True, "materialize_grads": True}
            return list(torch.autograd.grad([x for x, _ in made], wanted, [seed for _, seed in made], **options))


class _DualFunction(TensorFunction):
    """The function with tangents of its floats, and those of its results: the derivative by an adjoint of the vjp,
    which is linear in it."""

    def __init__(self, of: TensorFunction):
        count = of.leaves + len(of.float_leaves)
        floats = *of.float_leaves, *range(of.leaves, count)
        name, shape = f"{of}, with tangents", lambda shapes: of.shape(shapes[: of.leaves])
        super().__init__(name, of.function, count, floats, shape)
        self.of, self.num_results = of, 2 * of.num_results
        self.float_results = tuple(range(self.num_results))

    def results(self, *tensors: Any) -> tuple[Any, ...]:
        import torch

        of = self.of
        given = [x if x.requires_grad else x.detach() for x in tensors[: of.leaves]]
        wanted = [given[k] if given[k].requires_grad else given[k].requires_grad_() for k in of.float_leaves]
        made = of.results(*given)
        alive = [x for x in made if x.requires_grad]
        options: Any = {"create_graph": True, "allow_unused": True, "materialize_grads": True}
        seeds = [torch.zeros_like(x).requires_grad_() for x in alive]
        pulled = torch.autograd.grad(alive, wanted, seeds, **options) if alive else ()
        along = iter(torch.autograd.grad(pulled, seeds, list(tensors[of.leaves :]), **options) if alive else ())
        return *made, *(next(along) if x.requires_grad else torch.zeros_like(x) for x in made)


def _tensors(arrays: Sequence[Any]) -> list[Any]:
    import torch

    return [torch.as_tensor(array) for array in arrays]
