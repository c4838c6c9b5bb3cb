"""Every script in examples/ runs, and what it prints is right."""

import itertools
import math
import os
import re
import sys
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch

from data import data_folder

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(
    str(path.relative_to(EXAMPLES))
    for path in (*EXAMPLES.glob("*.py"), *EXAMPLES.glob("tasks/*.py"))
    if path.stem not in ("experiment", "extras")
)


@pytest.fixture
def output_of(forked, tmp_path):
    def run(script: str, *options: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        environment.pop("DERIVABLE_DATA", None)
        done = forked.run(EXAMPLES / script, *options, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run


def test_bayesian_network(output_of):
    """The numbers of the textbook network, by summing the joint distribution."""
    joint = {}
    for b, e, a in itertools.product([True, False], repeat=3):
        alarm = {(True, True): 0.95, (True, False): 0.94, (False, True): 0.29, (False, False): 0.001}[b, e]
        p = (0.001 if b else 0.999) * (0.002 if e else 0.998) * (alarm if a else 1 - alarm)
        joint[b, e] = joint.get((b, e), 0.0) + p * (0.9 * 0.7 if a else 0.05 * 0.01)
    total = sum(joint.values())
    numbers = [float(text) for text in re.findall(r"= ([0-9.]+)", output_of("bayesian_network.py"))]
    expected = [
        total,
        (joint[True, True] + joint[True, False]) / total,
        (joint[True, True] + joint[False, True]) / total,
    ]
    assert numbers == pytest.approx(expected, abs=6e-5)


def test_points_to(output_of):
    """Followed by hand: the key is in a field of the request, which `found` has from the cache's last one."""
    output = output_of("points_to.py")
    assert "9 of 9 statements, 5 rules deep" in output
    assert 'fails: load("cache", y, f)' in output


def test_diagnosis(output_of):
    """The probabilities of broken parts and of worlds, by summing over all of them."""
    parts = {"disk": 0.05, "dns": 0.03, "cache": 0.1, "app": 0.02, "web": 0.02, "mail": 0.04}
    needs = [("site", "web"), ("web", "app"), ("app", "database"), ("app", "cache"), ("database", "disk")]
    needs += [("login", "app"), ("login", "mail"), ("report", "database"), ("mail", "dns"), ("web", "dns")]
    chances = np.array([*parts.values(), *(0.3 if y == "cache" else 0.95 for _, y in needs)])
    coins = (np.arange(2 ** len(chances))[:, None] >> np.arange(len(chances)) & 1).astype(bool)
    weights = np.where(coins, chances, 1 - chances).prod(1)
    down = dict.fromkeys({x for edge in needs for x in edge}, np.zeros(len(coins), bool))
    down |= dict(zip(parts, coins.T))
    for _ in range(5):
        for (x, y), spreads in zip(needs, coins.T[len(parts) :]):
            down[x] = down[x] | (down[y] & spreads)
    worlds = np.where(down["site"] & down["login"] & ~down["report"], weights, 0.0)
    total = worlds.sum()
    broken = {part: worlds[coin].sum() for part, coin in zip(parts, coins.T)}
    printed = output_of("diagnosis.py")
    found = {part: float(p) for part, p in re.findall(r"^  (\w+) +([\d.]+)$", printed, re.MULTILINE)}
    assert found == pytest.approx({part: p / total for part, p in broken.items()}, abs=6e-5)
    best = [float(p) for p in re.findall(r"([\d.]+) broken", printed)]
    assert best == pytest.approx(np.sort(worlds)[-1:-4:-1] / total, abs=6e-5)


def test_learned_choice(output_of):
    """The figures of the paper: 0.80 and 0.52."""
    printed = output_of("learned_choice.py")
    assert re.findall(r"([\d.]+) heads\(", printed)[:2] == ["0.80", "0.52"]
    assert printed.count("the first coin with probability") == 5


def test_count_models(output_of):
    """Australia has 18 proper colourings with three colours: 3 choices for Tasmania, 6 for the rest."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import count_models
    finally:
        sys.path.pop(0)
    colourings = []
    for colours in itertools.product(count_models.COLOURS, repeat=len(count_models.REGIONS)):
        colour = dict(zip(count_models.REGIONS, colours, strict=True))
        if all(colour[a] != colour[b] for a, b in (border.split("-") for border in count_models.BORDERS)):
            colourings.append(colour)
    weights = [(2.0 if colour["sa"] == "green" else 1.0) * (colour["q"] != "red") for colour in colourings]
    lines = output_of("count_models.py").splitlines()
    assert lines[0].startswith(f"{len(colourings)} colourings;")
    for line, region in zip(lines[1:], count_models.REGIONS, strict=True):
        expected = [
            sum(w for w, colouring in zip(weights, colourings, strict=True) if colouring[region] == colour)
            / sum(weights)
            for colour in count_models.COLOURS
        ]
        assert [float(text) for text in re.findall(r"\d\.\d+", line)] == pytest.approx(expected, abs=6e-4)


def test_sum_of_digits(output_of):
    pytest.importorskip("sklearn")
    accuracy = re.search(r"([\d.]+)%", output_of("sum_of_digits.py"))
    assert accuracy
    assert float(accuracy[1]) > 85


def test_exactly_one(output_of):
    """Unlabelled images make the outputs more consistent and do not cost accuracy."""
    pytest.importorskip("sklearn")
    rows = re.findall(r"accuracy ([\d.]+)%.* ([\d.]+)$", output_of("exactly_one.py"), re.MULTILINE)
    (plain, plain_consistency), (semantic, semantic_consistency) = [tuple(map(float, row)) for row in rows]
    assert semantic_consistency > plain_consistency + 0.05
    assert semantic > plain - 2


def test_dishonest_casino(output_of):
    """Nearly as many dice as Viterbi finds with the true tables (87.2% of these rolls), without knowing them."""
    output = output_of("dishonest_casino.py")
    sixes = re.search(r"([\d.]+)\]", output)
    found = re.search(r"([\d.]+)%", output)
    assert sixes
    assert found
    assert float(sixes[1]) == pytest.approx(0.5, abs=0.1)
    assert float(found[1]) > 82


def test_source_packages(output_of):
    """Of a slice; the whole takes half a minute and finds 85%."""
    output = output_of("source_packages.py", "--pieces", "4", "--steps", "10", "--columns", "65536")
    commonest, found = map(float, re.findall(r"([\d.]+)%", output))
    assert commonest < 30
    assert found > 65


def test_raven(output_of, tmp_path):
    """With attributes given every problem is solved; the rest of the script on a few panels, which teach nothing."""
    sizes = {"panels": 128, "epochs": 1, "problems": 8, "steps": 15, "length": 32, "inputs": 2}
    options = [f"--{name}={size}" for name, size in sizes.items()]
    output = output_of("raven.py", *options)
    given = re.search(r"attributes given +NVSA ([\d.]+)% +PrAE ([\d.]+)%", output)
    assert given
    assert given.groups() == ("100.0", "100.0")
    assert len(re.findall(r"raven, noise [\d.]+ +NVSA", output)) == 6
    assert "2 panels at once" in output
    assert (tmp_path / "raven.png").stat().st_size > 10_000


def real_data() -> list[str]:
    """The option that names the folder of real data, where it is there."""
    folder = data_folder()
    return [] if folder is None else ["--data", str(folder)]


def test_transitive_closure(output_of):
    """Of a random graph, and agreement with breadth-first search from each node that is drawn."""
    output = output_of("tasks/transitive_closure.py", "--sources", "5")
    assert re.search(r"random: [\d,]+ edges, [\d,]+ pairs", output)
    assert "random: 100.0% of the nodes searched agree" in output
    assert "\nwhat differs: " in output


@pytest.mark.slow
def test_same_generation(output_of):
    output = output_of("tasks/same_generation.py")
    assert re.search(r"random: [\d,]+ edges, [\d,]+ pairs", output)
    assert "random: 100.0% of the pairs agree" in output
    assert "\nwhat differs: " in output


def test_pointer_analysis(output_of):
    """A random program as a worklist has it; and the Java program as Soufflé has it, where its facts are here."""
    output = output_of("tasks/pointer_analysis.py", "--methods", "40", *real_data())
    assert "40 methods: 100.0% as the worklist finds them" in output
    assert "\nwhat differs: " in output
    if real_data():
        assert "Java: 20 pairs of variable and object, 100.0% as Soufflé finds them" in output


@pytest.mark.slow
def test_static_analysis(output_of):
    output = output_of("tasks/static_analysis.py", "--packages", "json")
    assert "1.00 json.decoder:JSONDecoder.decode may raise JSONDecodeError" in output
    assert "\nwhat differs: " in output


def test_confidences_of_static_analysis():
    """The confidence of an alarm is that of the widest chain of calls, searched for in plain Python."""
    import derivable as dv
    import static_analysis

    program = dv.Program(static_analysis.PROGRAM)
    facts, _ = static_analysis.read_sources(["html", "wsgiref"], program.inputs)
    database = program.run(facts, provenance="minmaxprob")
    runs: dict[str, list[tuple[str, float]]] = {}
    for (site, function), tag in database["runs"].items():
        runs.setdefault(site, []).append((function, tag))
    supers: dict[str, set[str]] = {}
    for name, base in facts["base"]:
        supers.setdefault(name, set()).add(base)

    def kinds(exception: str) -> set[str]:
        found, work = set(), [exception]
        while work:
            name = work.pop()
            if name not in found:
                found.add(name)
                work += supers.get(name, ())
        return found

    def is_caught(site: str, exception: str) -> bool:
        return any((site, kind) in facts["guarded"] for kind in kinds(exception))

    sites = {fact[:2] for name, rows in facts.items() if name.startswith("calls_") for fact in rows}
    best = {(f, e): 1.0 for f, s, e in facts["raises"] if not is_caught(s, e)}
    changed = True
    while changed:
        changed = False
        for function, site in sites:
            for callee, tag in runs.get(site, ()):
                for (other, exception), sure in list(best.items()):
                    wider = other == callee and min(tag, sure) > best.get((function, exception), 0.0)
                    if wider and not is_caught(site, exception):
                        best[function, exception] = min(tag, sure)
                        changed = True
    assert len(best) > 10
    assert dict(database["escapes"].items()) == pytest.approx(best)


def shares_of(output: str) -> tuple[float, float]:
    """(accuracy through logic, that of a network alone) in percent."""
    found = re.search(r"through logic: ([\d.]+)%; by a network alone: ([\d.]+)%", output)
    assert found
    assert "in the symbolic part" in output
    assert re.search(r"^published: .+\nwhat differs: ", output, re.MULTILINE)
    return float(found[1]), float(found[2])


@pytest.mark.slow
def test_pathfinder(output_of, tmp_path):
    """A few steps, which teach little."""
    shares_of(output_of("tasks/pathfinder.py", "--side", "3", "--images", "60", "--test", "40", "--steps", "4"))
    assert (tmp_path / "pathfinder.png").stat().st_size > 10_000


def test_lattices_of_pathfinder():
    """The best path, as networkx finds it."""
    import pathfinder

    rng = np.random.default_rng(0)
    reason = pathfinder.Reasoner((3, 3))
    found = torch.from_numpy(rng.uniform(0.01, 0.99, (5, len(reason.dashes) + 9)))
    for row, answer in zip(found.numpy(), reason(found).tolist()):
        graph = networkx.Graph()
        for (a, b), p in zip(reason.dashes, row):
            graph.add_edge(a, b, cost=-math.log(p))
        costs = dict(networkx.all_pairs_dijkstra_path_length(graph, weight="cost"))
        dots = row[len(reason.dashes) :]
        best = max(dots[a] * dots[b] * math.exp(-costs[a][b]) for a in range(9) for b in range(9) if a != b)
        assert answer == pytest.approx(best)


@pytest.mark.slow
def test_pacman(output_of, tmp_path):
    """A few steps, which teach little."""
    options = {"steps": 3, "mazes": 4, "test": 4, "large": 6}
    shares_of(output_of("tasks/pacman.py", *(f"--{name}={size}" for name, size in options.items())))
    assert (tmp_path / "pacman.png").stat().st_size > 10_000


def test_planner_of_pacman():
    """What steps are worth, as breadth-first search has it, in mazes that are seen as they are."""
    import pacman

    mazes, plan = pacman.Mazes(8, 5, 0), pacman.planner(5)
    seen = torch.nn.functional.one_hot(torch.from_numpy(mazes.kinds), 4).double().movedim(-1, 1)
    for kinds, values in zip(mazes.kinds, pacman.worth(plan, seen).tolist()):
        graph = networkx.Graph((c, d) for c, _, d in pacman.steps(5) if pacman.ENEMY not in kinds[[c, d]])
        here, flag = (int((kinds == kind).argmax()) for kind in (pacman.HERE, pacman.FLAG))
        far = networkx.single_source_shortest_path_length(graph, flag)
        after = {action: d for c, action, d in pacman.steps(5) if c == here}
        expected = [0.99 ** (far[after[a]] + 1) if after.get(a) in far else 0.0 for a in range(4)]
        assert values == pytest.approx(expected)


@pytest.mark.slow
def test_rna_folding(output_of, tmp_path):
    """A few sequences, which teach little."""
    options = ["--train", "16", "--test", "4", "--epochs", "1"]
    shares_of(output_of("tasks/rna_folding.py", *options))
    assert (tmp_path / "rna.png").stat().st_size > 10_000


def test_grammar_of_rna():
    """The best parse among all structures of eight bases."""
    import rna_folding

    def structures(i: int, j: int):
        """All sets of pairs of positions i to j - 1 that do not cross."""
        if i >= j:
            yield frozenset()
            return
        yield from structures(i, j - 1)
        for k in range(i, j - 1):
            for left in structures(i, k):
                for inner in structures(k + 1, j - 1):
                    yield left | inner | {(k, j - 1)}

    p = np.random.default_rng(0).dirichlet(np.full(9, 0.3), 8)

    def weight(structure: frozenset[tuple[int, int]]) -> float:
        alone = set(range(8)) - {place for pair in structure for place in pair}
        near = any(j - i <= rna_folding.LOOP for i, j in structure)
        pairs = math.prod(p[i, j] * p[j, i] for i, j in structure)
        return 0.0 if near else pairs * math.prod(max(p[k, 8], 1e-12) for k in alone)

    best = max(structures(0, 8), key=weight)
    value, (found,) = rna_folding.Grammar()([torch.from_numpy(p)], least=1e-12)
    assert best
    assert value.item() == pytest.approx(weight(best))
    assert found == best


@pytest.mark.slow
def test_formulas(output_of, tmp_path):
    """A few formulas, which teach little."""
    options = {"train": 64, "test": 16, "epochs": 1, "long": 8}
    shares_of(output_of("tasks/formulas.py", *(f"--{name}={size}" for name, size in options.items())))
    assert (tmp_path / "formulas.png").stat().st_size > 10_000


def test_values_of_formulas():
    """Formulas that are read with certainty have the values that Python gives them."""
    import formulas

    texts = [*formulas.random_formulas(6, 7, np.random.default_rng(0)), "7", "8/2/4", "1-2-3", "2+6/3*5"]
    symbols = torch.tensor([formulas.SYMBOLS.index(symbol) for text in texts for symbol in text])
    p = 0.9 * torch.nn.functional.one_hot(symbols, len(formulas.SYMBOLS)) + 0.1 / len(formulas.SYMBOLS)
    found = formulas.Calculator(2)(p, [len(text) for text in texts])
    for text, (values, q) in zip(texts, found):
        assert values[q.argmax()].item() == pytest.approx(eval(text))


@pytest.mark.slow
def test_kinship(output_of, tmp_path):
    """A few stories, which teach little."""
    shares_of(output_of("tasks/kinship.py", "--train", "64", "--epochs", "1", "--kept", "5"))
    assert (tmp_path / "kinship.png").stat().st_size > 10_000


def test_answers_of_kinship():
    """Relations that are read with certainty are composed, in whatever order they are told."""
    import kinship

    text = "[Dan] is the son of [Carl]. [Ann] is the mother of [Bob]. [Ann] has a brother called [Carl]. "
    graph = {("Carl", "Dan"): "son", ("Bob", "Ann"): "mother", ("Ann", "Carl"): "brother"}
    other = {("Fay", "Eve"): "wife", ("Eve", "Gus"): "grandson"}
    graph, other = ({pair: kinship.relation(name) for pair, name in each.items()} for each in (graph, other))
    batch = [
        kinship.story_of(text, ("Bob", "Carl"), "uncle", graph),
        kinship.story_of(text, ("Carl", "Bob"), "nephew", graph),
        kinship.story_of("[Eve] is [Fay]'s wife. [Gus] is the grandson of [Eve].", ("Fay", "Gus"), "grandson", other),
    ]
    # What the second is to the first, and the first to the second, in each sentence.
    told = ["father son son mother brother sister"] * 2 + ["husband wife grandmother grandson"]
    numbers = torch.tensor([kinship.RELATIONS.index(name) for text in told for name in text.split()])
    p = 0.9 * torch.nn.functional.one_hot(numbers, 20) + 0.1 / 20
    found = kinship.Family(3, kinship.RULES_KNOWN)(p.unflatten(0, (-1, 2)), batch)
    assert found.argmax(-1).tolist() == [story.answer for story in batch]

    # Of rules that are learnt from what sentences state, the ones that give the answers are made more likely.
    assert kinship.stated(batch[-1:]).nonzero().tolist() == [[0, 1, numbers[-3]], [1, 1, numbers[-1]]]
    table = kinship.Table()
    for story, rule in ((batch[0], "parent sibling uncle"), (batch[2], "spouse grandchild grandchild")):
        table.zero_grad()
        answers = kinship.Family(1, None)(kinship.stated([story]), [story], table(None))
        kinship.loss_of(answers, kinship.answers_of([story])).backward()
        assert table.scores.grad is not None
        raised = np.unravel_index(int(table.scores.grad.argmin()), table.scores.shape)
        assert [list(kinship.KINDS)[k] for k in raised] == rule.split()


def test_every_script_is_tested():
    tested = re.findall(r'output_of\("([\w/]+\.py)"', Path(__file__).read_text())
    assert sorted(set(tested)) == SCRIPTS
