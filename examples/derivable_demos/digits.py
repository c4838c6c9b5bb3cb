"""`derivable demo digits`: a network learns to read digits; only the sums of pairs of numbers supervise it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import torch

from derivable.core.diagnostics import DomainError
from derivable.datalog.facts.inputs import categorical
from derivable.nn.logic import Logic
from derivable_demos.addition import (
    columns_program,
    digit_relations,
    num_sums,
    pairs,
    sum_digits,
    sum_relations,
    sums,
    sums_program,
)
from derivable_demos.handwriting import Handwriting
from derivable_demos.network import DigitReader
from derivable_demos.stopwatch import Stopwatch
from derivable_demos.training import Learned, Training, fit, pick_device, read


@dataclass(frozen=True)
class Settings(Training):
    """What to train. `rounds` is how often each training image is used, each time beside others."""

    num_digits: int = 1
    encoding: str = "sums"
    provenance: str = "exact"
    k: int | None = None
    rounds: int = 1


@dataclass(kw_only=True)
class LearnedDigits(Learned):
    """A sum counts only if it is right as a whole."""

    num_train_images: int
    num_train_pairs: int
    sum_accuracy: float
    test_pairs: np.ndarray = field(repr=False)


def sum_layer(settings: Settings) -> Logic:
    """The logic layer of an encoding: outputs [batch, sum] for "sums", [batch] for "columns"."""
    digit = categorical(range(10))
    names = digit_relations(settings.num_digits)
    if settings.encoding == "sums":
        program, evidence = sums_program(settings.num_digits), []
        outputs: dict = {"sum_2": range(num_sums(settings.num_digits))}
    elif settings.encoding == "columns":
        program, evidence = columns_program(settings.num_digits), sum_relations(settings.num_digits)
        outputs = {"correct": ()}
    else:
        raise DomainError(f"no encoding {settings.encoding!r}", hint="sums or columns")
    inputs = dict.fromkeys([*names, *evidence], digit)
    return Logic(program, inputs=inputs, outputs=outputs, provenance=settings.provenance, k=settings.k)


class SumLoss:
    """Negative log-likelihood of the sums, in nats: the only supervision there is.

    Exact inference gives log-probabilities that do not underflow. The other provenances give scores
    in [0, 1] that do not add up to one, so they are trained as Scallop does, by binary cross-entropy.
    """

    def __init__(self, layer: Logic, settings: Settings):
        self.layer = layer
        self.settings = settings
        self.names = digit_relations(settings.num_digits)
        exact = settings.provenance == "exact"
        self.watch = Stopwatch(layer.log if exact else layer)
        self.exact = exact

    def __call__(self, probabilities: torch.Tensor, totals: torch.Tensor) -> torch.Tensor:
        """probabilities [example, place, 10], totals [example] int64 -> the mean loss, a scalar."""
        inputs = dict(zip(self.names, probabilities.unbind(1)))
        if self.settings.encoding == "columns":
            known = torch.as_tensor(sum_digits(totals.cpu().numpy(), self.settings.num_digits)).to(totals.device)
            evidence = torch.nn.functional.one_hot(known, 10).to(probabilities.dtype)
            inputs.update(zip(sum_relations(self.settings.num_digits), evidence.unbind(1)))
            scores = self.watch(**inputs)
            if self.exact:
                return -scores.mean()
            return torch.nn.functional.binary_cross_entropy(scores.clamp(0, 1), torch.ones_like(scores))
        scores = self.watch(**inputs)
        if self.exact:
            return torch.nn.functional.nll_loss(scores, totals)
        target = torch.nn.functional.one_hot(totals, scores.shape[-1]).to(scores.dtype)
        return torch.nn.functional.binary_cross_entropy(scores.clamp(0, 1), target)


def learn(data: Handwriting, settings: Settings, *, show: bool | None = None) -> LearnedDigits:
    """Train a DigitReader from sums alone and test it on images it has not seen.

    show  a progress bar with the loss on stderr; None means if stderr is a terminal
    Global random state is left as it was; the same settings give the same training on one machine.
    """
    device = pick_device(settings.device)
    began = time.perf_counter()
    layer = sum_layer(settings)
    places = 2 * settings.num_digits
    SumLoss(layer, settings)(torch.full((2, places, 10), 0.1).requires_grad_(), torch.zeros(2).long()).backward()
    preparation_seconds = time.perf_counter() - began
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        examples = pairs(len(data.train_images), settings.num_digits, settings.rounds, settings.seed)
        totals = torch.as_tensor(sums(data.train_labels, examples)).to(device)
        images = torch.as_tensor(data.train_images)[:, None].to(device)
        index = torch.as_tensor(examples).to(device)
        network = DigitReader(*data.train_images.shape[1:], num_classes=10, starts_uniform=True).to(device)
        loss_of = SumLoss(layer, settings)

        def batch_loss(batch: torch.Tensor) -> torch.Tensor:
            scores = network(images[index[batch].flatten()])
            return loss_of(scores.softmax(-1).view(len(batch), places, 10), totals[batch])

        training_seconds, losses = fit(network, batch_loss, len(examples), settings, show=show, device=device)
    network.eval()
    predictions = read(network, data.test_images, device)
    test_pairs = pairs(len(data.test_images), settings.num_digits, 1, settings.seed)
    right_sums = sums(predictions, test_pairs) == sums(data.test_labels, test_pairs)
    confusion = np.zeros((10, 10), np.int64)
    np.add.at(confusion, (data.test_labels, predictions), 1)
    return LearnedDigits(
        settings=settings,
        data=data.name,
        num_train_images=len(images),
        num_train_pairs=len(examples),
        circuit=layer.size_text(),
        preparation_seconds=preparation_seconds,
        training_seconds=training_seconds,
        symbolic_seconds=loss_of.watch.seconds,
        sum_accuracy=float(right_sums.mean()),
        digit_accuracy=float((predictions == data.test_labels).mean()),
        losses=losses,
        confusion=confusion,
        test_pairs=test_pairs,
        predictions=predictions,
    )
