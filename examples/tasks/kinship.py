"""Kinship from stories (CLUTRR): how are two people related whose relation no sentence states?

    python examples/tasks/kinship.py --data FOLDER [--rules known|learned]

A small network reads each sentence, which names two people, and gives a distribution over 20 relations for either
direction. The program composes them. Supervision is the answer of a story alone; stories to learn from have two or
three sentences, and those of the test up to ten. With `--rules learned` the table of compositions is learnt, too: a
weight for each triple of kinds of relatives; rules that are read off it answer the stories of the test. People and
relations differ from story to story, so that the inputs are `dv.varying()`, and a batch is one run.

Stories are CLUTRR's (`clutrr/`; made with its generator, whose licence is CC BY-NC 4.0); without data, stories of our
own from templates. The published set-up reads stories of another draw, written in part by people, with RoBERTa; the
paper gives no accuracy. The baseline is a network that reads the whole story with a GRU.

Reached on two busy cores: 70.3% of 929 stories (58.7% by a network alone), 54% to 59% where they have seven sentences
and more (26% to 33%), after five minutes. A batch takes nine times as long where rules are learnt: a quarter of a
second for 16 stories.
"""

from __future__ import annotations

import ast
import csv
import gzip
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import derivable as dv
from experiment import QUIET, RIGHT, Clock, data_file, draw_losses, figure, options, report, report_time, save, train

KINDS = {
    "parent": ("father", "mother"), "child": ("son", "daughter"), "sibling": ("brother", "sister"),
    "grandparent": ("grandfather", "grandmother"), "grandchild": ("grandson", "granddaughter"),
    "uncle": ("uncle", "aunt"), "nephew": ("nephew", "niece"), "spouse": ("husband", "wife"),
    "parent-in-law": ("father-in-law", "mother-in-law"), "child-in-law": ("son-in-law", "daughter-in-law"),
}  # fmt: skip
RELATIONS = [name for pair in KINDS.values() for name in pair]
# My (first)'s (second) is my (third).
RULES = """
    parent parent grandparent, parent sibling uncle, parent child sibling, child child grandchild, child sibling child,
    child spouse child-in-law, child grandparent parent, child uncle sibling, sibling parent parent,
    sibling sibling sibling, sibling child nephew, sibling grandparent grandparent, spouse child child,
    spouse parent parent-in-law, spouse grandchild grandchild, grandchild sibling grandchild
"""
PROGRAM = """
    type said(r: i32, x: i32, y: i32), asked(x: i32, y: i32)
    type kind(r: i32, k: i32), gender(r: i32, g: i32), rule(j: i32, k: i32, l: i32)
    // My p's q is my r, who has the gender of the q.
    rel compose(p, q, r) = kind(p, j), kind(q, k), rule(j, k, l), gender(q, g), kind(r, l), gender(r, g)
    rel kin(r, x, y) = said(r, x, y)
    rel kin(r, x, z) = kin(p, x, y), kin(q, y, z), compose(p, q, r), x != z
    rel answer(r) = asked(x, y), kin(r, x, y)
"""
NUMBER = {name: k for k, name in enumerate(KINDS)}
RULES_KNOWN = [tuple(NUMBER[name] for name in rule.split()) for rule in RULES.split(",")]
FACTS = {
    "kind": [(r, r // 2) for r in range(len(RELATIONS))],
    "gender": [(r, r % 2) for r in range(len(RELATIONS))],
}


class Story(NamedTuple):
    sentences: list[tuple[str, ...]]  # words; the people are "1" and "2", in the order in which they are named
    people: list[tuple[int, int]]  # who these are
    asked: tuple[int, int]
    answer: int
    length: int


def story_of(text: str, asked: tuple[str, str], answer: str) -> Story:
    number: dict[str, int] = {name: k for k, name in enumerate(asked)}
    sentences, people = [], []
    for sentence in re.split(r"(?<=[.!?])\s+", text.strip()):
        names = list(dict.fromkeys(re.findall(r"\[(\w+)\]", sentence)))
        if len(names) != 2:
            continue
        for place, name in enumerate(names):
            sentence = sentence.replace(f"[{name}]", f" {place + 1} ")
            number.setdefault(name, len(number))
        sentences.append(tuple(re.findall(r"[\w-]+", sentence.lower())))
        people.append((number[names[0]], number[names[1]]))
    answer = answer.replace("neice", "niece")
    return Story(sentences, people, (0, 1), RELATIONS.index(answer), len(sentences))


def read_stories(path: Path) -> list[Story]:
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    return [story_of(row["story"], ast.literal_eval(row["query"]), row["target"]) for row in rows]


def own_stories(count: int, length: int, rng: np.random.Generator) -> list[Story]:
    """Chains of relations that the rules compose, from left to right, each said in one of three ways."""
    table = {(first, second): third for first, second, third in RULES_KNOWN}
    ways = "[{y}] is the {r} of [{x}].", "[{x}] has a {r} called [{y}].", "[{y}] is [{x}]'s {r}."
    made = []
    while len(made) < count:
        chain = rng.integers(0, len(RELATIONS), length).tolist()
        total: int | None = chain[0]
        for each in chain[1:]:
            found = None if total is None else table.get((total // 2, each // 2))
            total = None if found is None else 2 * found + each % 2
        if total is None:
            continue
        said = [
            ways[rng.integers(3)].format(x=f"P{k}", y=f"P{k + 1}", r=RELATIONS[each]) for k, each in enumerate(chain)
        ]
        text = " ".join(said[k] for k in rng.permutation(length))
        made.append(story_of(text, ("P0", f"P{length}"), RELATIONS[total]))
    return made


def stories(data: Path | None, count: int, rng: np.random.Generator) -> tuple[list[Story], dict[int, list[Story]]]:
    """(to learn from, by the number of sentences those of the test)."""
    paths = [data_file(data, f"clutrr/data_{name}") for name in ("2d5007e7", "a9dcffad")]
    if paths[0] is None or paths[1] is None:
        learnt = own_stories(count // 2, 2, rng) + own_stories(count // 2, 3, rng)
        return learnt, {length: own_stories(60, length, rng) for length in (2, 3, 4, 5)}
    learnt = read_stories(paths[0] / "1.2,1.3_train.csv.gz")
    test = {length: read_stories(paths[1] / f"1.{length}_test.csv.gz") for length in range(2, 11)}
    return [learnt[k] for k in rng.permutation(len(learnt))[:count]], test


class Words:
    """Numbers of words, 0 for what is beyond the end and 1 for a word that was not learnt."""

    def __init__(self, learnt: list[Story]):
        counts = Counter(word for story in learnt for sentence in story.sentences for word in sentence)
        self.number = {word: k for k, word in enumerate(sorted(counts), 2)}

    def __len__(self) -> int:
        return len(self.number) + 2

    def rows(self, sentences: list[tuple[str, ...]]) -> Tensor:
        """[sentence, place] of numbers."""
        numbers = [torch.tensor([self.number.get(word, 1) for word in sentence]) for sentence in sentences]
        return nn.utils.rnn.pad_sequence(numbers, batch_first=True)


class Reader(nn.Module):
    """words [sentence, place] -> probabilities [sentence, 2, 20]: what 2 is to 1, and what 1 is to 2."""

    def __init__(self, words: int, width: int = 64):
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.near = nn.Conv1d(width, 2 * width, 3, padding=1)
        self.top = nn.Sequential(
            nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 2 * len(RELATIONS)),
        )  # fmt: skip

    def forward(self, words: Tensor) -> Tensor:
        x = torch.relu(self.near(self.embedding(words).mT)).amax(-1)
        return self.top(x).unflatten(-1, (2, len(RELATIONS))).softmax(-1)


class Family:
    """Answers stories through the program; a batch is one run.

    kept    the relations of a sentence that are facts, the most probable ones
    scores  [kind, kind, kind] of rules that are learnt: logits of what two kinds compose to; None for `rules`
    """

    def __init__(self, kept: int, scores: Tensor | None, rules: Sequence[tuple[int, ...]] = RULES_KNOWN):
        self.kept, self.scores = kept, scores
        inputs: dict[str, Any] = {"said": dv.varying()}
        facts: dict[str, Any] = dict(FACTS)
        if scores is None:
            facts["rule"] = rules
        else:
            inputs["rule"] = dv.independent(list(np.ndindex(*scores.shape)))
        outputs = {"answer": range(len(RELATIONS))}
        self.layer = dv.nn.Logic(PROGRAM, inputs, outputs, facts=facts, provenance="topkproofs", k=1)

    def __call__(self, p: Tensor, batch: list[Story]) -> Tensor:
        """p [sentence, 2, 20] of all sentences of the stories -> the probabilities [story, 20] of the answers."""
        best = p.detach().topk(self.kept, -1).indices
        pairs = torch.tensor([pair for story in batch for pair in story.people])
        either = torch.stack([pairs, pairs.flip(-1)], 1)[:, :, None].expand(-1, -1, self.kept, -1)
        offsets = np.cumsum([0, *(story.length for story in batch)]) * 2 * self.kept
        facts = dv.nn.Ragged(
            torch.cat([best[..., None], either], -1).flatten(0, 2).numpy(),
            p.gather(-1, best).flatten(),
            offsets,
            groups=np.arange(offsets[-1]) // self.kept,
        )
        rules = {} if self.scores is None else {"rule": self.scores.softmax(-1).flatten()}
        return self.layer(said=facts, **rules, certain={"asked": [[story.asked] for story in batch]})


def loss_of(p: Tensor, answers: Tensor) -> Tensor:
    """The mean negative log share of the answer among all relations, in nats."""
    wanted = p.gather(1, answers[:, None]).squeeze(1)
    return (p.sum(1).clamp(min=1e-20).log() - wanted.clamp(min=1e-20).log()).mean()


class Alone(nn.Module):
    """Whole stories read by a GRU: words [story, place] -> scores [story, 20]."""

    def __init__(self, words: int, width: int = 64):
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.memory = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.top = nn.Linear(2 * width, len(RELATIONS))

    def forward(self, words: Tensor) -> Tensor:
        return self.top(self.memory(self.embedding(words))[0].amax(1))


def answers_of(batch: list[Story]) -> Tensor:
    return torch.tensor([story.answer for story in batch])


def drawn(learnt: list[Story], size: int, epochs: int) -> Iterator[list[Story]]:
    for _ in range(epochs):
        for rows in torch.randperm(len(learnt)).split(size):
            yield [learnt[k] for k in rows.tolist()]


def whole(batch: list[Story], words: Words) -> Tensor:
    """A story as one text, in which people are numbered: the two that are asked for come first."""
    texts = [
        tuple(
            f"p{pair[int(word) - 1]}" if word in ("1", "2") else word
            for sentence, pair in zip(story.sentences, story.people)
            for word in sentence
        )
        for story in batch
    ]
    return words.rows(texts)


def main(arguments: list[str] | None = None) -> None:
    sizes: dict[str, Any] = {"train": 2000, "epochs": 8, "kept": 20, "rate": 2e-3, "rules": "known"}
    wanted = options(__doc__ or "", arguments, "kinship", **sizes)
    torch.manual_seed(wanted.seed)
    rng = np.random.default_rng(wanted.seed)
    learnt, test = stories(None if wanted.data is None else Path(wanted.data), wanted.train, rng)
    words = Words(learnt)
    words.number |= {f"p{k}": len(words) + k for k in range(12)}
    network = Reader(len(words))
    scores = nn.Parameter(torch.zeros(3 * (len(KINDS),))) if wanted.rules == "learned" else None
    network.register_parameter("rules", scores)
    family = Family(wanted.kept, scores)

    def read() -> Iterator[tuple[Tensor, list[Story]]]:
        for batch in drawn(learnt, 16, wanted.epochs):
            yield words.rows([sentence for story in batch for sentence in story.sentences]), batch

    training = train(network, lambda p, batch: loss_of(family(p, batch), answers_of(batch)), read(), wanted.rate)
    report_time(f"{wanted.epochs * len(learnt):,} stories learnt", training)

    alone = Alone(len(words))
    texts = ((whole(batch, words), answers_of(batch)) for batch in drawn(learnt, 32, 2 * wanted.epochs))
    train(alone, nn.functional.cross_entropy, texts, wanted.rate)

    ours, theirs, inference = {}, {}, Clock()
    rules = RULES_KNOWN
    if scores is not None:
        # The rules that are read off: those that are more than twice as probable as before.
        chances, best = scores.softmax(-1).max(-1)
        pairs = (chances > 2 / len(KINDS)).nonzero().tolist()
        rules = [(j, k, int(best[j, k])) for j, k in pairs]
    family = Family(min(wanted.kept, 5), None, rules)  # what is unlikely is left out now
    for length, batch in test.items():
        with inference.all(), torch.no_grad():
            p = network(words.rows([sentence for story in batch for sentence in story.sentences]))
            with inference.symbolic():
                found = family(p, batch).argmax(-1)
        ours[length] = (found == answers_of(batch)).float().mean().item()
        with torch.no_grad():
            theirs[length] = (alone(whole(batch, words)).argmax(-1) == answers_of(batch)).float().mean().item()
        print(f"{length} sentences: {ours[length]:.1%} through logic, {theirs[length]:.1%} by a network alone")
    sizes_of = np.array([len(batch) for batch in test.values()])
    mean_ours, mean_theirs = (float(np.average(list(each.values()), weights=sizes_of)) for each in (ours, theirs))
    report(mean_ours, mean_theirs, (None, None))
    report_time(f"{sizes_of.sum()} stories", inference)

    made, (losses, axes) = figure(2)
    draw_losses(losses, training.losses)
    axes.plot(list(ours), list(ours.values()), "o-", color=RIGHT, label="through logic")
    axes.plot(list(theirs), list(theirs.values()), "o-", color=QUIET, label="a network alone")
    axes.set_xlabel("sentences of a story")
    axes.set_ylabel("accuracy")
    axes.set_ylim(0, 1.02)
    axes.legend(frameon=False)
    save(made, wanted.picture)


if __name__ == "__main__":
    main()
