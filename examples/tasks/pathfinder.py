"""Pathfinder: are the two dots of an image the ends of one dashed line?

    python examples/tasks/pathfinder.py [--side 6 --images 2000 --steps 400]

A convolutional network gives each cell of a lattice the probability that a dot is there, and each pair of neighbours
the probability that dashes join them. The program says what it means that two dots are joined. Supervision is the yes
or no of an image alone, on lattices that grow: is there a dot in this cell, are these two cells joined, and so on to
3x3 and to the whole. The network is the same for each cell, so that what it learns on small ones holds on large ones.

Images are drawn here: two dashed lines that do not cross, pieces of others, two dots, noise. Those of the published
task (71.4% by networks, 87.4% through logic in the paper) are not here, and are harder: lines bend freely between
cells, so that training takes 32 to 41 hours there. The baseline is a convolutional network that is trained in as many
steps, all on images of the largest lattice. Top-1 proofs are computed as `max_product`, which is the same here: the
best path uses no fact twice.

Reached: 99.8% of 1,216 held-out images after 104 seconds on one core (50.3% by a network alone); the symbolic part has
16% of the time of training and 3% of that of seeing 1,216 images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiment import RIGHT, Clock, batches, draw_losses, figure, options, report, report_time, save, train

# isort: split

import numpy as np
import torch
from torch import Tensor, nn

import derivable as dv

PROGRAM = """
    type dash(a: i32, b: i32), dot(a: i32)
    rel joined(a, b) = dash(a, b) or dash(b, a)
    rel reached(a, b) = dot(a), joined(a, b)
    rel reached(a, b) = reached(a, c), joined(c, b)
    rel connected() = reached(a, b), dot(b), a != b
"""
PUBLISHED = "87.4% and 71.4% by a network alone (Lobster, figure 3)"
DIFFERS = "images are drawn here, with lines that bend at cells alone; the published ones bend freely and are harder"
Cell = tuple[int, int]
PIXELS = 8  # of the side of a cell


def walk(rng: np.random.Generator, shape: tuple[int, int], taken: list[Cell], shortest: int) -> list[Cell]:
    """Cells of a path that neither crosses itself nor comes to a cell that is taken; [] if it gets stuck."""
    length = int(rng.integers(shortest, max(2 * max(shape), shortest + 1)))
    place = (int(rng.integers(shape[0])), int(rng.integers(shape[1])))
    path = [] if place in taken else [place]
    while path and len(path) < length:
        y, x = path[-1]
        steps = [(y + v, x + u) for v, u in ((1, 0), (-1, 0), (0, 1), (0, -1))]
        steps = [(v, u) for v, u in steps if 0 <= v < shape[0] and 0 <= u < shape[1]]
        steps = [step for step in steps if step not in taken and step not in path]
        if not steps:
            return path if len(path) >= shortest else []
        path.append(steps[rng.integers(len(steps))])
    return path


def draw_line(image: np.ndarray, points: np.ndarray, rng: np.random.Generator) -> None:
    """Dashes of three pixels with gaps of one and a half along the points [point, 2]."""
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    far = np.concatenate([[0], steps.cumsum()])
    along = np.arange(0, far[-1], 0.25)
    along = along[(along + rng.uniform(0, 4.5)) % 4.5 < 3]
    at = np.stack([np.interp(along, far, points[:, axis]) for axis in (0, 1)], 1)
    rows, columns = np.clip(np.rint(at).astype(int), 0, np.array(image.shape) - 1).T
    image[rows, columns] = 1


def draw(shape: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, bool]:
    """(an image [pixel, pixel] float32 in [0, 1], whether its dots are joined); of one cell, whether it has a dot."""
    if shape == (1, 1):
        return draw_cell(rng)
    is_joined = bool(rng.integers(2))
    shortest = max(min(shape) - 1, 1)
    first: list[Cell] = []
    second: list[Cell] = []
    # Two cells have no room for a second line.
    while len(first) < 1 + is_joined or not (second or (is_joined and max(shape) < 3)):
        first = walk(rng, shape, [], shortest)
        second = walk(rng, shape, first, shortest)
    lines = [first, second]
    for _ in range(min(shape) // 3):
        lines.append(walk(rng, shape, [cell for line in lines for cell in line], 2)[:2])
    image = np.zeros((shape[0] * PIXELS, shape[1] * PIXELS), np.float32)
    drawn = []
    for line in filter(None, lines):
        points = (np.array(line) + 0.5) * PIXELS + rng.uniform(-1.5, 1.5, (len(line), 2))
        draw_line(image, points, rng)
        drawn.append(points)
    ends = (drawn[0][0], drawn[0][-1]) if is_joined else (drawn[0][0], drawn[1][rng.choice([0, -1])])
    return inked(image, ends, rng), is_joined


def draw_cell(rng: np.random.Generator) -> tuple[np.ndarray, bool]:
    """A cell with dashes, and perhaps a dot at their end."""
    image = np.zeros((3 * PIXELS, 3 * PIXELS), np.float32)
    path = walk(rng, (3, 3), [], 1)
    points = (np.array(path) + 0.5) * PIXELS + rng.uniform(-1.5, 1.5, (len(path), 2))
    draw_line(image, points, rng)
    has_dot = bool(rng.integers(2))
    image = inked(image, (points[0],) if has_dot else (), rng)
    y, x = (PIXELS * place for place in path[0 if has_dot else rng.integers(len(path))])
    return image[y : y + PIXELS, x : x + PIXELS], has_dot


def inked(image: np.ndarray, dots: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """The image with dots, shaded at random, with noise."""
    grid = np.indices(image.shape)
    for y, x in dots:
        image[np.hypot(grid[0] - y, grid[1] - x) < 2.3] = 1
    return np.clip(image * rng.uniform(0.7, 1) + rng.normal(0, 0.1, image.shape), 0, 1).astype(np.float32)


def images(count: int, shape: tuple[int, int], seed: int) -> tuple[Tensor, Tensor]:
    """(images [image, 1, pixel, pixel], whether their dots are joined [image])."""
    rng = np.random.default_rng(seed)
    pictures, answers = zip(*(draw(shape, rng) for _ in range(count)))
    return torch.from_numpy(np.stack(pictures)[:, None]), torch.tensor(answers, dtype=torch.float32)


def trunk() -> nn.Sequential:
    """pixels -> 48 features of each cell."""
    layers: list[nn.Module] = []
    for before, after in ((1, 24), (24, 48), (48, 48)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(48, 48, 1), nn.ReLU())


class Lattice(nn.Module):
    """images -> probabilities [image, fact]: dashes to the right, dashes down, and dots of all cells."""

    def __init__(self):
        super().__init__()
        self.trunk = trunk()
        self.across, self.down, self.dot = nn.Linear(96, 1), nn.Linear(96, 1), nn.Linear(48, 1)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.trunk(pictures).movedim(1, -1)
        across = self.across(torch.cat([x[:, :, :-1], x[:, :, 1:]], -1))
        down = self.down(torch.cat([x[:, :-1], x[:, 1:]], -1))
        return 0.01 + 0.98 * torch.cat([part.flatten(1) for part in (across, down, self.dot(x))], 1).sigmoid()


class Reasoner:
    """The layer of a lattice, whose facts are in the order of `Lattice`."""

    def __init__(self, shape: tuple[int, int]):
        cell = np.arange(shape[0] * shape[1]).reshape(shape)
        self.dashes = list(zip(cell[:, :-1].ravel().tolist(), cell[:, 1:].ravel().tolist()))
        self.dashes += zip(cell[:-1].ravel().tolist(), cell[1:].ravel().tolist())
        if not self.dashes:
            self.connected = None
            return
        inputs = {"dash": dv.independent(self.dashes), "dot": dv.independent(cell.ravel().tolist())}
        self.connected = dv.nn.Logic(PROGRAM, inputs, {"connected": ()}, "max_product")

    def __call__(self, found: Tensor) -> Tensor:
        """The probabilities [image] that the dots are joined; of one cell, that it has a dot."""
        if self.connected is None:
            return found[:, 0]
        return self.connected(dash=found[:, : len(self.dashes)], dot=found[:, len(self.dashes) :])

    def loss(self, found: Tensor, wanted: Tensor) -> Tensor:
        return loss_of(self(found), wanted)


def loss_of(p: Tensor, wanted: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy(p.clamp(1e-6, 1 - 1e-6), wanted)


def accuracy(p: Tensor, wanted: Tensor) -> float:
    return ((p > 0.5) == (wanted > 0.5)).float().mean().item()


Stage = tuple[Reasoner, Tensor, Tensor]


def mixed(stages: list[Stage], shares: list[int], steps: int) -> Iterator[tuple[Tensor, tuple[Reasoner, Tensor]]]:
    """Batches of images of stages, each of which is drawn as often as its share says."""
    for _ in range(steps):
        reason, pictures, answers = stages[int(torch.tensor(shares, dtype=torch.float32).multinomial(1))]
        rows = torch.randint(len(pictures), (32,))
        yield pictures[rows], (reason, answers[rows])


def main(arguments: list[str] | None = None) -> None:
    wanted = options(__doc__ or "", arguments, "pathfinder", side=6, images=2000, test=1216, steps=400, rate=3e-3)
    torch.manual_seed(wanted.seed)
    shapes = [(1, 1), (1, 2), (2, 1), (3, 3), (wanted.side, wanted.side)]
    stages = [(Reasoner(shape), *images(wanted.images, shape, wanted.seed + k)) for k, shape in enumerate(shapes)]
    reason = stages[-1][0]
    network, training = Lattice(), Clock()
    for shares in ([1, 1, 1, 0, 0], [1, 1, 1, 6, 0], [1, 1, 1, 3, 9]):
        batches_of = mixed(stages, shares, 2 * wanted.steps)
        train(network, lambda found, wanted: wanted[0].loss(found, wanted[1]), batches_of, wanted.rate, training)
    report_time("training", training)

    inference = Clock()
    test, answers = images(wanted.test, shapes[-1], wanted.seed + len(shapes))
    with torch.no_grad():
        reason(network(test[:8]))  # kernels are loaded now
        with inference.all():
            found = network(test)
            with inference.symbolic():
                p = reason(found)
    report_time(f"{len(test):,} images", inference)

    alone = nn.Sequential(trunk(), nn.Flatten(), nn.Linear(48 * wanted.side**2, 128), nn.ReLU(), nn.Linear(128, 1))
    seen = images(2 * wanted.images, shapes[-1], wanted.seed + len(shapes) + 1)
    own = batches(*seen, 32, max(1, 6 * wanted.steps * 32 // len(seen[0])))
    train(alone, lambda found, wanted: loss_of(found.sigmoid().squeeze(1), wanted), own, wanted.rate / 3)
    with torch.no_grad():
        theirs = accuracy(alone(test).sigmoid().squeeze(1), answers)
    report(accuracy(p, answers), theirs, PUBLISHED, DIFFERS)

    made, (losses, *panels) = figure(3)
    draw_losses(losses, training.losses)
    for axes, row in zip(panels, (int(answers.argmax()), int(answers.argmin()))):
        axes.imshow(test[row, 0], cmap="gray_r")
        axes.set_axis_off()
        axes.set_title(f"joined with {p[row]:.2f}", fontsize=9)
        shares = found[row].tolist()
        for (a, b), share in zip(reason.dashes, shares):
            ends = (np.array(np.divmod([a, b], wanted.side)) + 0.5) * PIXELS
            axes.plot(ends[1], ends[0], color=RIGHT, alpha=share, linewidth=2)
        for cell, share in enumerate(shares[len(reason.dashes) :]):
            y, x = (np.array(np.divmod(cell, wanted.side)) + 0.5) * PIXELS
            axes.plot(x, y, "o", color=RIGHT, alpha=share, markersize=8)
    save(made, wanted.picture)


if __name__ == "__main__":
    main()
