"""What the workers of the robustness tests run; importable by name, so that spawned workers find it."""

from __future__ import annotations

import numpy as np

from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import AND, LITERAL, OR


def wide_circuit(num_variables: int = 24, copies: int = 200) -> Circuit:
    """A deterministic, decomposable circuit with enough nodes and levels to occupy several threads."""
    from derivable.circuit.graph.builder import CircuitBuilder

    rng = np.random.default_rng(0)
    builder = CircuitBuilder()
    roots = []
    for _ in range(copies):
        below = builder.true()
        for variable in rng.permutation(num_variables) + 1:
            positive = builder.conjunction([builder.literal(int(variable)), below])
            below = builder.disjunction([positive, builder.literal(-int(variable))])
        roots.append(below)
    return builder.build(roots, num_variables=num_variables)


def deep_circuit(levels: int) -> Circuit:
    """A chain x2 or (x1 and (x2 or (...))) with as many levels as asked for (an even number). Not decomposable."""
    from derivable.circuit.graph.builder import circuit_from_arrays

    kind = np.empty(levels + 2, np.uint8)
    literal = np.zeros(levels + 2, np.int32)
    kind[:2], literal[:2] = LITERAL, (1, 2)
    kind[2:] = np.where(np.arange(levels) % 2 == 0, AND, OR)
    number = np.arange(2, levels + 2)
    leaf = np.where(kind[2:] == AND, 0, 1)
    children = np.stack([leaf, number - 1], axis=1).ravel()
    offsets = np.concatenate([[0, 0], np.arange(levels + 1) * 2])
    return circuit_from_arrays(kind, literal, offsets, children, [levels + 1], 2)


def weights_of(circuit: Circuit, batch: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.01, 0.99, (batch, circuit.num_variables))


def digest(batch: int) -> bytes:
    """The bits of a forward and a backward pass."""
    import torch

    circuit = wide_circuit()
    weights = torch.tensor(weights_of(circuit, batch), requires_grad=True)
    roots = circuit.to_torch(semiring="log")(weights.log())
    roots.sum().backward()
    assert weights.grad is not None
    return roots.detach().numpy().tobytes() + weights.grad.numpy().tobytes()


def numpy_digest(batch: int) -> bytes:
    """The bits of an evaluation without torch."""
    circuit = wide_circuit()
    return circuit.evaluate(weights_of(circuit, batch), semiring="real").tobytes()


class Weights:
    """A data set (torch's protocol) whose items are values of a circuit."""

    def __init__(self, circuit: Circuit, length: int, through_torch: bool):
        self.circuit = circuit
        self.module = circuit.to_torch(semiring="real") if through_torch else None
        self.rows = weights_of(circuit, length)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int):
        import torch

        if self.module is not None:
            return self.module(torch.from_numpy(self.rows[index]))
        return torch.from_numpy(self.circuit.evaluate(self.rows[index]))
