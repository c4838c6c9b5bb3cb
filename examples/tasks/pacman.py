"""PacMan maze: find the way to the flag past enemies, seeing only a picture of the maze.

    python examples/tasks/pacman.py [--side 5 --steps 250 --large 15]

A convolutional network says what each cell shows, and the program plans: what a step is worth is the probability of the
best safe way to the flag after it. Both together are the value function of Q-learning; the reward, 1 for the flag, is
the only supervision. It learns in 5x5 mazes and is then tested in 15x15 ones, the paper's size, with the same network.
The baseline is Q-learning with a network alone, with as many steps. Mazes and pictures are drawn here; the paper gives
no success rate. Its agent meets larger mazes in training, too, up to 20x20, and its program has 14 rules for a grid of
which edges are facts; this one has five. Top-1 proofs are computed as `max_product`, which is the same here: the best
way comes to no cell twice.

Reached: all of 500 small and 50 large mazes after 46 seconds of training on one core (10.8% of the small ones by a
network alone); the symbolic part has 19% of the time of training and 10% of that of playing the large ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from experiment import BLUE, Clock, draw_losses, figure, options, report, report_time, save, train

# isort: split

import numpy as np
import torch
from torch import Tensor, nn

import derivable as dv

PROGRAM = """
    type here(c: i32), flag(c: i32), safe(c: i32)
    type step(c: i32, direction: i32, d: i32)              // from cell to cell, certain
    rel way(c) = flag(c)
    rel way(c) = step(c, _, d), safe(d), way(d)
    rel act(a) = here(c), step(c, a, d), safe(d), way(d)
"""
PUBLISHED = "no success rate in Lobster's paper; about 99.4% of 5x5 mazes (Scallop, Li et al. 2023)"
DIFFERS = "mazes and pictures are drawn here; five rules with cells as facts instead of 14 with edges"
NOTHING, HERE, FLAG, ENEMY = range(4)
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
PIXELS = 10  # of the side of a cell
DISCOUNT = 0.99


def steps(side: int) -> list[tuple[int, int, int]]:
    return [
        (y * side + x, direction, (y + v) * side + x + u)
        for y in range(side)
        for x in range(side)
        for direction, (v, u) in enumerate(MOVES)
        if 0 <= y + v < side and 0 <= x + u < side
    ]


def sprites() -> Tensor:
    """What cells show: [kind, colour, pixel, pixel]."""
    y, x = np.indices((PIXELS, PIXELS)) - (PIXELS - 1) / 2
    disc = np.hypot(x, y) < 3.5
    kinds = np.zeros((4, 3, PIXELS, PIXELS), np.float32)
    kinds[HERE, :2] = disc & ~((x > 0) & (abs(y) < x / 2))
    kinds[FLAG, 1] = ((x > -3) & (x < 3) & (y < 0) & (y > -4)) | ((abs(x + 3) < 1) & (abs(y) < 4))
    kinds[ENEMY, 0] = (disc & (y < 0)) | ((abs(x) < 3.5) & (y >= 0) & (y < 4) & (x.astype(int) % 2 == 0))
    return torch.from_numpy(kinds)


class Mazes:
    """A number of mazes that are played at the same time; one that ends begins anew."""

    def __init__(self, count: int, side: int, seed: int):
        self.count, self.side, self.rng = count, side, np.random.default_rng(seed)
        self.kinds = np.zeros((count, side * side), np.int64)
        self.age = np.zeros(count, int)
        self.next = np.full((side * side, len(MOVES)), -1)
        for c, direction, d in steps(side):
            self.next[c, direction] = d
        self.sprites = sprites()
        self.begin(np.arange(count))

    def begin(self, rows: np.ndarray) -> None:
        for row in rows.tolist():
            while True:
                self.kinds[row] = NOTHING
                places = self.rng.permutation(self.side**2)[: 2 + self.side**2 // 5]
                self.kinds[row, places] = ENEMY
                self.kinds[row, places[0]], self.kinds[row, places[1]] = HERE, FLAG
                if self.has_way(self.kinds[row]):
                    break
            self.age[row] = 0

    def has_way(self, kinds: np.ndarray) -> bool:
        work, seen = deque(np.flatnonzero(kinds == HERE).tolist()), set()
        while work:
            cell = work.popleft()
            if kinds[cell] == FLAG:
                return True
            if cell not in seen and kinds[cell] != ENEMY:
                seen.add(cell)
                work += [d for d in self.next[cell].tolist() if d >= 0]
        return False

    def pictures(self) -> Tensor:
        """[maze, colour, pixel, pixel]: sprites are shifted by a pixel and shaded at random, with noise."""
        cells = self.sprites[self.kinds]
        shift = self.rng.integers(-1, 2, 2).tolist()
        shade = torch.from_numpy(self.rng.uniform(0.6, 1, (self.count, self.side**2, 1, 1, 1)).astype(np.float32))
        cells = (cells.roll(shift, (-2, -1)) * shade).unflatten(1, (self.side, self.side))
        pictures = cells.permute(0, 3, 1, 4, 2, 5).reshape(self.count, 3, self.side * PIXELS, self.side * PIXELS)
        noise = self.rng.normal(0, 0.1, pictures.shape).astype(np.float32)
        return pictures + torch.from_numpy(noise)

    def move(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(the reward, whether it is over) of each maze; a wall and an enemy end it, and so do too many steps."""
        here = (self.kinds == HERE).argmax(1)
        there = self.next[here, actions]
        found = np.where(there >= 0, self.kinds[np.arange(self.count), there], ENEMY)
        goes_on = found == NOTHING
        self.kinds[goes_on, here[goes_on]] = NOTHING
        self.kinds[goes_on, there[goes_on]] = HERE
        self.age += 1
        over = ~goes_on | (self.age >= 4 * self.side)
        return (found == FLAG).astype(np.float32), over


class Eyes(nn.Module):
    """pictures -> probabilities [maze, kind, cell] of what each cell shows."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 5, stride=5), nn.ReLU(),
            nn.Conv2d(64, 64, 1), nn.ReLU(), nn.Conv2d(64, 4, 1),
        )  # fmt: skip

    def forward(self, pictures: Tensor) -> Tensor:
        return self.layers(pictures).flatten(2).softmax(1)


def planner(side: int) -> dv.nn.Logic:
    cells = dv.independent(range(side * side))
    return dv.nn.Logic(
        PROGRAM,
        inputs={"here": cells, "flag": cells, "safe": cells},
        outputs={"act": range(len(MOVES))},
        provenance="max_product",
        facts={"step": steps(side)},
    )


def worth(plan: dv.nn.Logic, kinds: Tensor) -> Tensor:
    """The value [maze, action] of each action, from what cells show [maze, kind, cell]."""
    return plan(here=kinds[:, HERE], flag=kinds[:, FLAG], safe=DISCOUNT * (1 - kinds[:, ENEMY]))


def play(
    network: nn.Module, values: Callable[[Tensor], Tensor], mazes: Mazes, count: int, clock: Clock
) -> Iterator[tuple[Tensor, Any]]:
    """Batches (pictures, (actions, what they are worth)) of Q-learning, drawn from the last 4,000 steps played."""
    rng, memory = mazes.rng, deque(maxlen=4000)
    pictures = mazes.pictures()
    for number in range(count):
        with torch.no_grad():
            seen = network(pictures)
            with clock.symbolic():
                actions = values(seen).argmax(1).numpy()
        explore = rng.random(mazes.count) < max(0.1, 1 - 2 * number / count)
        actions = np.where(explore, rng.integers(0, len(MOVES), mazes.count), actions)
        reward, over = mazes.move(actions)
        after = mazes.pictures()
        memory.extend(zip(pictures, actions.tolist(), reward.tolist(), over.tolist(), after))
        mazes.begin(np.flatnonzero(over))
        pictures = mazes.pictures()
        before, taken, rewards, ends, later = zip(*[memory[k] for k in rng.integers(0, len(memory), mazes.count)])
        with torch.no_grad():
            seen = network(torch.stack(later))
            with clock.symbolic():
                best = values(seen).amax(1)
        wanted = torch.tensor(rewards) + DISCOUNT * best * ~torch.tensor(ends)
        yield torch.stack(before), (torch.tensor(taken), wanted.clamp(0, 1))


def learn(network: nn.Module, values: Callable[[Tensor], Tensor], mazes: Mazes, count: int, rate: float) -> Clock:
    def loss_of(found: Tensor, wanted: tuple[Tensor, Tensor]) -> Tensor:
        actions, targets = wanted
        taken = values(found).gather(1, actions[:, None]).squeeze(1)
        return nn.functional.binary_cross_entropy(taken.clamp(1e-6, 1 - 1e-6), targets)

    clock = Clock()
    return train(network, loss_of, play(network, values, mazes, count, clock), rate, clock)


def solve(network: nn.Module, values: Callable[[Tensor], Tensor], mazes: Mazes, clock: Clock) -> float:
    """The share of mazes in which the flag is reached."""
    solved, over = np.zeros(mazes.count, bool), np.zeros(mazes.count, bool)
    while not over.all():
        pictures = mazes.pictures()
        with clock.all(), torch.no_grad():
            seen = network(pictures)
            with clock.symbolic():
                actions = values(seen).argmax(1).numpy()
        reward, ended = mazes.move(actions)
        solved |= (reward > 0) & ~over
        over |= ended
    return float(solved.mean())


def main(arguments: list[str] | None = None) -> None:
    sizes: dict[str, Any] = {"side": 5, "large": 15, "steps": 250, "mazes": 32, "test": 500, "rate": 2e-3}
    wanted = options(__doc__ or "", arguments, "pacman", **sizes)
    torch.manual_seed(wanted.seed)
    small, large = planner(wanted.side), planner(wanted.large)
    eyes = Eyes()
    training = learn(
        eyes,
        lambda kinds: worth(small, kinds),
        Mazes(wanted.mazes, wanted.side, wanted.seed),
        wanted.steps,
        wanted.rate,
    )
    report_time(f"{wanted.steps} steps of {wanted.mazes} mazes", training)

    alone = nn.Sequential(
        Eyes().layers[:-1],
        nn.Flatten(),
        nn.Linear(64 * wanted.side**2, 128),
        nn.ReLU(),
        nn.Linear(128, 4),
        nn.Sigmoid(),
    )
    mazes = Mazes(wanted.mazes, wanted.side, wanted.seed)
    learn(alone, lambda found: found, mazes, wanted.steps, wanted.rate)
    ours = solve(eyes, lambda kinds: worth(small, kinds), Mazes(wanted.test, wanted.side, wanted.seed + 1), Clock())
    theirs = solve(alone, lambda found: found, Mazes(wanted.test, wanted.side, wanted.seed + 1), Clock())
    report(ours, theirs, PUBLISHED, DIFFERS, f"{wanted.side}x{wanted.side} mazes solved")
    inference = Clock()
    mazes = Mazes(50, wanted.large, wanted.seed + 2)
    share = solve(eyes, lambda kinds: worth(large, kinds), mazes, inference)
    print(f"{wanted.large}x{wanted.large} mazes solved, of 50: {share:.1%}")
    report_time("50 large mazes", inference)

    made, (losses, axes) = figure(2)
    draw_losses(losses, training.losses)
    mazes = Mazes(1, wanted.large, wanted.seed + 3)
    axes.imshow(mazes.pictures()[0].permute(1, 2, 0).clamp(0, 1))
    axes.set_axis_off()
    path, over = [int((mazes.kinds[0] == HERE).argmax())], False
    while not over:
        with torch.no_grad():
            action = worth(large, eyes(mazes.pictures())).argmax(1).numpy()
        over = mazes.move(action)[1].item()
        path.append(int(mazes.next[path[-1], action.item()]))
    rows, columns = np.divmod(np.array([cell for cell in path if cell >= 0]), wanted.large)
    axes.plot((columns + 0.5) * PIXELS, (rows + 0.5) * PIXELS, color=BLUE, linewidth=2)
    save(made, wanted.picture)


if __name__ == "__main__":
    main()
