"""Two coins in a bag: which one was tossed was not seen, and how often each of them shows heads is learned.

    python examples/learned_choice.py

The example of Do and Batzoglou, "What is the expectation maximization algorithm?", Nature Biotechnology 26 (2008): five
times one of two coins is taken and tossed ten times. They find 0.80 and 0.52, each coin being taken half of the times.
Here how often each is taken is then learned, too.
"""

import derivable as dv

TOSSES = ["HTTTHHTHTH", "HHHHTHHHHH", "HTHHHHHTHH", "HTHTTTHHTT", "THHHTHHHTH"]
COINS = """
type toss(usize, usize)
rel round(r) = toss(r, _)
rel {SHARES} = round(r)
rel ?0.6::heads(r, i) = first(r), toss(r, i)
rel ?0.5::heads(r, i) = second(r), toss(r, i)
query first
"""


def main() -> None:
    facts = {"toss": [(r, i) for r, tosses in enumerate(TOSSES) for i in range(len(tosses))]}
    seen = {"heads": {(r, i): side == "H" for r, tosses in enumerate(TOSSES) for i, side in enumerate(tosses)}}
    halves, learned = "0.5::first(r); 0.5::second(r)", "?0.5::first(r); ?0.5::second(r)"
    for what, shares in [("each half of the times", halves), ("as often as is learned", learned)]:
        program = dv.Program(COINS.replace("SHARES", shares))
        fit = program.fit([seen], facts, tolerance=1e-9)
        print(f"coins are taken {what}: log-likelihood {fit.curve[0]:.4f} -> {fit.log_likelihood:.4f}")
        for name, p in fit.items():
            print(f"  {p:.2f} {name}")
    rounds = program.with_parameters(fit).run(facts, evidence=seen)["first"]
    for r, tosses in enumerate(TOSSES):
        print(f"round {r}, {tosses.count('H')} heads: the first coin with probability {rounds.get((r,), 0.0):.2f}")


if __name__ == "__main__":
    main()
