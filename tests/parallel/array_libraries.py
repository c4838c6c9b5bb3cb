"""Derivatives of one program in torch and in JAX, forwards and backwards, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

# Gives an array or a tuple of arrays; those that are not floats have no adjoints.
Program = Callable[..., object]


class Torch:
    def __repr__(self) -> str:
        return "torch"

    def array(self, value) -> object:
        import torch

        return torch.from_numpy(np.array(value))

    def run(self, program: Program, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [part.numpy() for part in _tuple(program(*map(self.array, inputs)))]

    def pull(self, program: Program, inputs: Sequence[np.ndarray], adjoints: Sequence[np.ndarray]) -> list[np.ndarray]:
        import torch

        leaves = [torch.from_numpy(np.array(value)).requires_grad_() for value in inputs]
        results = [part for part in _tuple(program(*leaves)) if part.is_floating_point()]
        seeds = [
            torch.from_numpy(np.array(adjoint, part.detach().numpy().dtype)) for adjoint, part in zip(adjoints, results)
        ]
        return [part.numpy() for part in torch.autograd.grad(results, leaves, seeds)]

    def push(self, program: Program, inputs: Sequence[np.ndarray], tangents: Sequence[np.ndarray]) -> list[np.ndarray]:
        import torch

        def floats(*leaves):
            return tuple(part for part in _tuple(program(*leaves)) if part.is_floating_point())

        made = torch.func.jvp(floats, tuple(map(self.array, inputs)), tuple(map(self.array, tangents)))
        return [part.numpy() for part in made[1]]


class Jax:
    def __repr__(self) -> str:
        return "jax"

    def array(self, value) -> object:
        import jax.numpy as jnp

        return jnp.asarray(np.array(value))

    def run(self, program: Program, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(part) for part in _tuple(program(*map(self.array, inputs)))]

    def pull(self, program: Program, inputs: Sequence[np.ndarray], adjoints: Sequence[np.ndarray]) -> list[np.ndarray]:
        import jax

        results, pullback = jax.vjp(_floats(program), *map(self.array, inputs))
        seeds = tuple(self.array(np.array(adjoint, part.dtype)) for adjoint, part in zip(adjoints, results))
        return [np.asarray(part) for part in pullback(seeds)]

    def push(self, program: Program, inputs: Sequence[np.ndarray], tangents: Sequence[np.ndarray]) -> list[np.ndarray]:
        import jax

        made = jax.jvp(_floats(program), tuple(map(self.array, inputs)), tuple(map(self.array, tangents)))
        return [np.asarray(part) for part in made[1]]


def _floats(program: Program) -> Program:
    return lambda *leaves: tuple(part for part in _tuple(program(*leaves)) if part.dtype.kind == "f")


def _tuple(results) -> tuple:
    return results if isinstance(results, tuple) else (results,)


LIBRARIES = [Torch(), Jax()]


def jacobian_backwards(library, program: Program, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """[scalar of the float results, scalar of the inputs], a row at a time."""
    shapes = [part.shape for part in library.run(program, inputs) if part.dtype.kind == "f"]
    rows = []
    for adjoints in _units(shapes, inputs[0].dtype):
        rows.append(np.concatenate([part.ravel() for part in library.pull(program, inputs, adjoints)]))
    return np.array(rows)


def jacobian_forwards(library, program: Program, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The same, a column at a time."""
    rows = sum(part.size for part in library.run(program, inputs) if part.dtype.kind == "f")
    columns = np.zeros((0, rows))
    for tangents in _units([np.shape(value) for value in inputs], inputs[0].dtype):
        column = np.concatenate([part.ravel() for part in library.push(program, inputs, tangents)])
        columns = np.concatenate([columns, column[None]])
    return columns.T


def _units(shapes, dtype):
    for position, shape in enumerate(shapes):
        for place in np.ndindex(shape):
            made = [np.zeros(other, dtype) for other in shapes]
            made[position][place] = 1
            yield made
