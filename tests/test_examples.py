"""Every script in examples/ runs, and what it prints is right."""

import itertools
import os
import re
import sys
from pathlib import Path

import pytest

from data import data_folder

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.usefixtures("tier_of_users")
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(
    str(path.relative_to(EXAMPLES))
    for path in (*EXAMPLES.glob("*.py"), *EXAMPLES.glob("tasks/*.py"))
    if path.stem != "experiment"
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


def test_same_generation(output_of):
    output = output_of("tasks/same_generation.py")
    assert re.search(r"random: [\d,]+ edges, [\d,]+ pairs", output)
    assert "random: 100.0% of the pairs agree" in output


def test_pointer_analysis(output_of):
    """A random program as a worklist has it; and the Java program as Soufflé has it, where its facts are here."""
    output = output_of("tasks/pointer_analysis.py", "--methods", "40", *real_data())
    assert "40 methods: 100.0% as the worklist finds them" in output
    if real_data():
        assert "Java: 20 pairs of variable and object, 100.0% as Soufflé finds them" in output


def test_static_analysis(output_of):
    output = output_of("tasks/static_analysis.py", "--packages", "json")
    assert "1.00 json.decoder:JSONDecoder.decode may raise JSONDecodeError" in output


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


def test_every_script_is_tested():
    tested = re.findall(r'output_of\("([\w/]+\.py)"', Path(__file__).read_text())
    assert sorted(set(tested)) == SCRIPTS
