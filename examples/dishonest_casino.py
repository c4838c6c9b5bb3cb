"""A hidden Markov model learnt by gradients through scans: which rolls came from the loaded die?

    python examples/dishonest_casino.py

A casino swaps a fair die for a loaded one now and then. From nothing but the rolls, the model learns how often it
swaps and how the second die is loaded; a scan in log space is the forward algorithm, and its gradient needs no backward
algorithm. The same scan in max-plus is Viterbi: the gradient of the best score is 1 on the best path.
"""

import torch

import derivable as dv

ROLLS = 2000
STAY = torch.tensor([[0.98, 0.02], [0.04, 0.96]])
DICE = torch.tensor([[1 / 6] * 6, [0.1, 0.1, 0.1, 0.1, 0.1, 0.5]])


def simulate() -> tuple[torch.Tensor, torch.Tensor]:
    """(dice, rolls), each [time]."""
    dice = [0]
    for _ in range(ROLLS - 1):
        dice.append(int(torch.multinomial(STAY[dice[-1]], 1)))
    rolls = torch.multinomial(DICE[dice], 1).squeeze(1)
    return torch.tensor(dice), rolls


def total_score(semiring: str, plus: str, transition: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Over all paths, of log transition [from, to] and scores [time, state]; the first state is 0."""
    steps = transition + scores[:, None, :]
    paths = dv.parallel.reduce(dv.parallel.matrix_product(2, semiring), steps[1:])
    return dv.parallel.reduce(plus, scores[0, 0] + paths[0])


def main(steps: int = 100) -> float:
    torch.manual_seed(1)
    dice, rolls = simulate()
    swaps = torch.tensor([[2.0, 0.0], [0.0, 2.0]], requires_grad=True)
    faces = torch.zeros(2, 6)
    faces[1, 5] = 0.5  # which of the two is which
    faces.requires_grad_()
    optimiser = torch.optim.Adam([swaps, faces], lr=0.1)
    for _ in range(steps):
        loss = -total_score("log", "logaddexp", swaps.log_softmax(1), faces.log_softmax(1)[:, rolls].T) / ROLLS
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print("loaded die:", [round(p, 2) for p in faces[1].softmax(0).tolist()])

    scores = faces.detach().log_softmax(1)[:, rolls].T.requires_grad_()
    best = total_score("max_plus", "max", swaps.detach().log_softmax(1), scores)
    (on_path,) = torch.autograd.grad(best, scores)
    agreement = (on_path.argmax(1) == dice).float().mean().item()
    print(f"rolls whose die is found: {agreement:.1%}")
    return agreement


if __name__ == "__main__":
    main()
