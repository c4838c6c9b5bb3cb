"""How many ways are there to colour a map, and how likely is each colour of each region?

python examples/count_models.py
"""

import numpy as np

import derivable as dv

REGIONS = ("wa", "nt", "sa", "q", "nsw", "v", "t")
BORDERS = ["wa-nt", "wa-sa", "nt-sa", "nt-q", "sa-q", "sa-nsw", "sa-v", "q-nsw", "nsw-v"]
COLOURS = ("red", "green", "blue")


def main() -> None:
    pairs = [(region, colour) for region in REGIONS for colour in COLOURS]
    has = dict(zip(pairs, dv.circuit.variables([f"{region}_{colour}" for region, colour in pairs]), strict=True))
    rules = [dv.circuit.exactly_one(*(has[region, colour] for colour in COLOURS)) for region in REGIONS]
    for border in BORDERS:
        a, b = border.split("-")
        rules += [~(has[a, colour] & has[b, colour]) for colour in COLOURS]
    circuit = dv.circuit.compile(dv.circuit.formula.conjunction(rules))
    print(f"{circuit.model_count()} colourings; {circuit}")

    # Somebody wants South Australia green, twice as much as any other colour, and Queensland not red at all.
    assert circuit.names is not None
    weights = np.ones(circuit.num_variables)
    weights[circuit.names.index("sa_green")] = 2.0
    weights[circuit.names.index("q_red")] = 0.0
    marginals = circuit.marginals(weights, np.ones(circuit.num_variables))
    for region in REGIONS:
        row = [float(marginals[circuit.names.index(f"{region}_{colour}")]) for colour in COLOURS]
        print(f"{region:>4}", "  ".join(f"{colour} {p:.3f}" for colour, p in zip(COLOURS, row, strict=True)))


if __name__ == "__main__":
    main()
