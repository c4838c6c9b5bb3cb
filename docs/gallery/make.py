"""Runs examples and writes what the gallery shows: NAME.ipynb, executed, and NAME.svg, drawn from what it printed.

    python docs/gallery/make.py [NAME ...]

A notebook has the example's description, its code, and a call of `main` with all that this printed. A long example
makes a smaller run there. Examples of the folder `tasks` read real data from the folder that DERIVABLE_DATA names.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
NAMES = (
    "bayesian_network",
    "count_models",
    "diagnosis",
    "dishonest_casino",
    "exactly_one",
    "learned_choice",
    "points_to",
    "raven",
    "source_packages",
    "sum_of_digits",
)
TASKS = (
    "formulas",
    "kinship",
    "pacman",
    "pathfinder",
    "pointer_analysis",
    "rna_folding",
    "same_generation",
    "static_analysis",
    "transitive_closure",
)
# The calls of examples that take minutes as a script.
CALLS = {
    **dict.fromkeys(TASKS, "main([])"),
    "rna_folding": 'main("--train 600 --test 100".split())',
    "raven": 'main("--panels 2000 --epochs 10 --problems 50 --steps 60".split())',
    "source_packages": "main(limit=4)",
}
GREEN, GREY, RED, BLUE = "#2f7d5b", "#9aa5b1", "#c0392b", "#3f51b5"
MAIN = '\n\nif __name__ == "__main__":\n'


def path_of(name: str) -> Path:
    return EXAMPLES / ("tasks" if name in TASKS else ".") / f"{name}.py"


def cells_of(name: str) -> tuple[str, str]:
    """(the description, the code) of an example."""
    source = path_of(name).read_text()
    _, description, code = source.split('"""', 2)
    return description.strip(), code.partition(MAIN)[0].strip()


def call_of(name: str) -> str:
    return CALLS.get(name, "main()")


def output_of(code: str, call: str = "main()") -> str:
    """What the code and the call print. Files that these write are thrown away."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(compile(f"{code}\n\n{call}\n", "<notebook>", "exec"), {"__name__": "notebook"})
    return printed.getvalue()


def notebook(name: str, description: str, code: str, output: str) -> dict:
    """The notebook as its file has it (nbformat 4.5)."""

    def lines(text: str) -> list[str]:
        return text.splitlines(keepends=True)

    def cell(number: int, source: str, outputs: list[dict] | None) -> dict:
        made = {"cell_type": "markdown", "id": f"{name}-{number}", "metadata": {}, "source": lines(source)}
        if outputs is not None:
            made |= {"cell_type": "code", "execution_count": number, "outputs": outputs}
        return made

    stream = {"name": "stdout", "output_type": "stream", "text": lines(output)}
    return {
        "cells": [cell(0, description, None), cell(1, code, []), cell(2, call_of(name), [stream])],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


class Drawn:
    """A picture that is SVG already, in the place of a figure."""

    def __init__(self, svg: str):
        self.svg = svg

    def savefig(self, path: Path, **_) -> None:
        path.write_text(self.svg + "\n")


def drawing():
    """A figure without a window, and its axes."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "derivable", "font.family": "sans-serif"}
    figure = Figure(figsize=(6, 2.4), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def bars(names: list[str], values: list[float], colours: list[str], label: str):
    figure, axes = drawing()
    axes.barh(names[::-1], values[::-1], color=colours[::-1])
    axes.set_xlim(0, 1)
    axes.set_xlabel(label)
    for row, value in enumerate(values[::-1]):
        axes.text(value + 0.01, row, f"{value:.3g}", va="center")
    return figure


def seconds(rows: list[tuple[str, float]]):
    """Bars of seconds, ours and the baseline's in turn, on a logarithmic axis."""
    figure, axes = drawing()
    rows = rows[::-1]
    axes.barh([name for name, _ in rows], [value for _, value in rows], color=[GREY, GREEN] * (len(rows) // 2))
    axes.set_xscale("log")
    axes.set_xlabel("seconds")
    return figure


def numbers(pattern: str, text: str) -> list[float]:
    return [float(number) for number in re.findall(pattern, text)]


def picture(name: str, output: str):
    if name == "bayesian_network":
        found = numbers(r"\| both call\) = ([\d.]+)", output)
        return bars(["burglary", "earthquake"], found, [RED, BLUE], "probability, once both have called")
    if name == "count_models":
        figure, axes = drawing()
        rows = re.findall(r"^ *(\w+) red ([\d.]+)  green ([\d.]+)  blue ([\d.]+)$", output, re.MULTILINE)
        base = [0.0] * len(rows)
        for column, colour in enumerate((RED, GREEN, BLUE), 1):
            values = [float(row[column]) for row in rows]
            axes.bar([row[0] for row in rows], values, bottom=base, color=colour)
            base = [low + value for low, value in zip(base, values, strict=True)]
        axes.set_ylabel("probability of each colour")
        return figure
    if name == "diagnosis":
        rows = re.findall(r"^  (\w+) +([\d.]+)$", output, re.MULTILINE)
        names, values = [part for part, _ in rows], [float(p) for _, p in rows]
        return bars(names, values, [RED] + [GREY] * (len(rows) - 1), "probability that the part is broken")
    if name == "learned_choice":
        rows = re.findall(r"^round (\d), (\d+) heads: .* ([\d.]+)$", output, re.MULTILINE)
        names = [f"round {int(number) + 1}, {heads} heads" for number, heads, _ in rows]
        return bars(names, [float(p) for *_, p in rows], [BLUE] * len(rows), "probability of the first coin")
    if name == "dishonest_casino":
        shares = [float(share) for share in re.findall(r"[\d.]+", output.split("]")[0])]
        figure, axes = drawing()
        axes.bar(range(1, 7), shares, color=[GREY] * 5 + [RED])
        axes.axhline(1 / 6, color=BLUE, linestyle="--")
        axes.set_xlabel("face of the loaded die, as learnt from the rolls alone; dashed: a fair die")
        return figure
    if name == "exactly_one":
        found = re.findall(r"weight ([\d.]+): accuracy ([\d.]+)%.* ([\d.]+)$", output, re.MULTILINE)
        names = [f"weight {weight}: {what}" for weight, *_ in found for what in ("accuracy", "exactly one digit")]
        values = [value for _, accuracy, share in found for value in (float(accuracy) / 100, float(share))]
        return bars(names, values, [GREY, GREY, GREEN, GREEN], "on images that were held out")
    if name == "points_to":
        return Drawn(importlib.import_module(name).database().why("points_to", ("leaked", "Key@3")).svg())
    if name == "raven":
        rows = re.findall(
            r"^i-raven, noise ([\d.]+) +NVSA +([\d.]+)%  PrAE +([\d.]+)%  LVRF +([\d.]+)%", output, re.MULTILINE
        )
        figure, axes = drawing()
        for place, (reasoner, colour) in enumerate((("NVSA", GREEN), ("PrAE", BLUE), ("LVRF", GREY)), 1):
            places = [k + (place - 2) * 0.27 for k in range(len(rows))]
            axes.bar(places, [float(row[place]) / 100 for row in rows], width=0.25, color=colour, label=reasoner)
        axes.axhline(1 / 8, color=RED, linestyle="--", label="guessing")
        axes.set_xticks(range(len(rows)), [f"noise {row[0]}" for row in rows])
        axes.set_ylim(0, 1)
        axes.set_ylabel("problems solved")
        axes.legend(frameon=False, ncols=4, loc="upper center")
        return figure
    if name == "source_packages":
        commonest, model = (share / 100 for share in numbers(r"([\d.]+)%", output))
        names = ["always the commonest package", "the model"]
        return bars(
            names, [commonest, model], [GREY, GREEN], "pieces of held-out files that are assigned correctly"
        )
    if name in ("transitive_closure", "same_generation", "pointer_analysis"):
        found = re.findall(r"^(.+?): .* pairs in ([\d.]+) s; (.+?) ([\d.]+) s", output, re.MULTILINE)
        rows = [[(case, float(ours)), (f"{case}: {other}", float(theirs))] for case, ours, other, theirs in found]
        return seconds([row for pair in rows for row in pair])
    if name == "static_analysis":
        found = re.findall(r"confidence from ([\d.]+): .* ([\d.]+)% named", output)
        figure, axes = drawing()
        axes.bar(
            [f"from {low}" for low, _ in found], [float(share) for _, share in found], color=[GREEN, BLUE, GREY]
        )
        axes.set_xlabel("confidence of alarms")
        axes.set_ylabel("% named in the documentation")
        return figure
    if name in TASKS:
        (found,) = re.findall(r"through logic: ([\d.]+)%; by a network alone: ([\d.]+)%", output)
        published = re.search(r"^published: (?:about )?([\d.]+)%(?: and ([\d.]+)% by)?", output, re.MULTILINE)
        others = [share for share in published.groups() if share] if published else []
        names = ["through logic", "a network alone", "published, other data", "published, a network alone"]
        shares = [float(share) / 100 for share in (*found, *others)]
        return bars(
            names[: len(shares)], shares, ([GREEN, GREY] * 2)[: len(shares)], "accuracy on what is held out"
        )
    (share,) = numbers(r"([\d.]+)%", output)
    return bars(
        ["guessing", "learnt from sums"], [0.1, share / 100], [GREY, GREEN], "digits that are read correctly"
    )


def main(names: list[str]) -> None:
    sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "tasks")]
    for name in names or NAMES + TASKS:
        description, code = cells_of(name)
        output = output_of(code, call_of(name))
        made = notebook(name, description, code, output)
        (HERE / f"{name}.ipynb").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
        picture(name, output).savefig(HERE / f"{name}.svg", metadata={"Date": None})
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
