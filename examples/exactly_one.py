"""Semantic loss (Xu et al., 2018): unlabelled images teach that each shows exactly one digit.

    pip install "derivable[demo]" && python examples/exactly_one.py

Ten sigmoid outputs, 60 labelled images, 1,340 without labels.
"""

import torch
from sklearn.datasets import load_digits

import derivable as dv


def train(weight: float, epochs: int = 30) -> tuple[float, float]:
    """Returns the accuracy and the probability of 'exactly one', both on held-out images."""
    torch.manual_seed(0)
    images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    images = images.float() / 16
    labelled, unlabelled, test = torch.randperm(len(images)).split([60, 1340, len(images) - 1400])

    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    exactly_one = dv.nn.SemanticLoss(dv.circuit.exactly_one(*dv.circuit.variables(10)), inputs="logits")
    targets = torch.nn.functional.one_hot(digits, 10).float()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.005)
    for _ in range(epochs):
        for batch in unlabelled[torch.randperm(len(unlabelled))].split(134):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(network(images[labelled]), targets[labelled])
            loss = loss + weight * exactly_one(network(images[batch]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    with torch.no_grad():
        logits = network(images[test])
        accuracy = (logits.argmax(dim=-1) == digits[test]).float().mean().item()
        return accuracy, (-exactly_one(logits)).exp().item()


def main() -> None:
    for weight in (0.0, 0.1):
        accuracy, consistency = train(weight)
        print(f"weight {weight}: accuracy {accuracy:.1%}, exactly one digit with probability {consistency:.3f}")


if __name__ == "__main__":
    main()
