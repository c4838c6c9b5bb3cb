"""torch and JAX behind one face: derivatives of a program, forwards and backwards, on NumPy arrays.

A program takes arrays of its library and gives an array or a tuple of them; those that are not floats have no adjoints.
`function` is where a library has `grad`, `vjp`, `jvp`, `vmap` and the like, and `module` where it has `sin`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.test_util import check_grads
from torch.autograd import gradcheck, gradgradcheck

Program = Callable[..., object]
Arrays = Sequence[np.ndarray]


class Library:
    name: str
    module: ModuleType
    function: ModuleType

    def __repr__(self) -> str:
        return self.name

    def array(self, value) -> object:
        raise NotImplementedError

    def check(self, program: Program, inputs: Arrays, order: int = 2) -> None:
        """Derivatives of first and perhaps second order, in both modes, against differences."""
        raise NotImplementedError

    def run(self, program: Program, inputs: Arrays) -> list[np.ndarray]:
        return [_numpy(part) for part in _tuple(program(*map(self.array, inputs)))]

    def pull(self, program: Program, inputs: Arrays, adjoints: Arrays) -> list[np.ndarray]:
        results, pullback = self.function.vjp(_floats(program), *map(self.array, inputs))
        seeds = [self.array(np.array(adjoint, _numpy(part).dtype)) for adjoint, part in zip(adjoints, results)]
        return [_numpy(part) for part in pullback(tuple(seeds))]

    def push(self, program: Program, inputs: Arrays, tangents: Arrays) -> list[np.ndarray]:
        made = self.function.jvp(_floats(program), tuple(map(self.array, inputs)), tuple(map(self.array, tangents)))
        return [_numpy(part) for part in made[1]]


class Torch(Library):
    name, module, function = "torch", torch, torch.func

    def array(self, value) -> object:
        return torch.from_numpy(np.array(_numpy(value)))

    def check(self, program: Program, inputs: Arrays, order: int = 2) -> None:
        """Entry by entry, or along random directions where there are many and in second derivatives."""
        leaves = [self.array(value).requires_grad_() for value in inputs]
        assert gradcheck(program, leaves, check_forward_ad=True, fast_mode=sum(x.numel() for x in leaves) > 20)
        assert order == 1 or gradgradcheck(program, leaves, check_fwd_over_rev=True, fast_mode=True)

    def pull(self, program: Program, inputs: Arrays, adjoints: Arrays) -> list[np.ndarray]:
        """By the tape, as users do."""
        leaves = [self.array(value).requires_grad_() for value in inputs]
        results = _floats(program)(*leaves)
        seeds = [self.array(np.array(seed, _numpy(part).dtype)) for seed, part in zip(adjoints, results)]
        return [part.numpy() for part in torch.autograd.grad(results, leaves, seeds)]


class Jax(Library):
    name, module, function = "jax", jnp, jax

    def array(self, value) -> object:
        return jnp.asarray(np.array(value))

    def check(self, program: Program, inputs: Arrays, order: int = 2) -> None:
        check_grads(jax.jit(program), tuple(map(self.array, inputs)), order)


def _numpy(part) -> np.ndarray:
    return np.asarray(part.detach() if isinstance(part, torch.Tensor) else part)


def _tuple(results) -> tuple:
    return results if isinstance(results, tuple) else (results,)


def _floats(program: Program) -> Callable[..., tuple]:
    def floats(*leaves):
        return tuple(part for part in _tuple(program(*leaves)) if "float" in str(part.dtype))

    return floats


TORCH, JAX = LIBRARIES = [Torch(), Jax()]


def jacobian_backwards(library: Library, program: Program, inputs: Arrays) -> np.ndarray:
    """[scalar of the float results, scalar of the inputs], a row at a time."""
    shapes = [part.shape for part in library.run(program, inputs) if part.dtype.kind == "f"]
    units = _units(shapes, inputs[0].dtype)
    return np.array([np.concatenate([x.ravel() for x in library.pull(program, inputs, unit)]) for unit in units])


def jacobian_forwards(library: Library, program: Program, inputs: Arrays) -> np.ndarray:
    """The same, a column at a time."""
    rows = sum(part.size for part in library.run(program, inputs) if part.dtype.kind == "f")
    units = _units([np.shape(value) for value in inputs], inputs[0].dtype)
    columns = [np.concatenate([x.ravel() for x in library.push(program, inputs, unit)]) for unit in units]
    return np.array(columns).reshape(len(columns), rows).T


def _units(shapes, dtype):
    for position, shape in enumerate(shapes):
        for entry in np.ndindex(shape):
            made = [np.zeros(other, dtype) for other in shapes]
            made[position][entry] = 1
            yield made
