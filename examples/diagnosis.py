"""Why does the web site not answer? A diagnosis network as a Datalog program: explanations, not just probabilities.

    python examples/diagnosis.py

Parts fail, and failures spread along a network of services. What was seen is evidence; the most probable worlds are the
explanations, and marginal MAP decides on some parts alone.
"""

import derivable as dv

NETWORK = """
type needs(String, String), part(String)
rel needs = {("site", "web"), ("web", "app"), ("app", "database"), ("app", "cache"), ("database", "disk"),
             ("login", "app"), ("login", "mail"), ("report", "database"), ("mail", "dns"), ("web", "dns")}
rel part(x) = needs(x, _) or needs(_, x)

rel weak = {("disk", 0.05), ("dns", 0.03), ("cache", 0.1), ("app", 0.02), ("web", 0.02), ("mail", 0.04)}
rel p::broken(x) = weak(x, p)
rel 0.95::spreads(x, y) = needs(x, y), y != "cache"
rel 0.3::spreads(x, "cache") = needs(x, "cache")

rel down(x) = broken(x)
rel down(x) = needs(x, y), down(y), spreads(x, y)
query broken
"""
SEEN = {"down": {"site": True, "login": True, "report": False}}


def main() -> None:
    program = dv.Program(NETWORK)
    posterior = program.run(evidence=SEEN)["broken"]
    print("the site and the login are down, reports are fine; how probable is it that a part is broken?")
    for part, p in sorted(posterior.items(), key=lambda pair: -pair[1]):
        print(f"  {part[0]:6} {p:.4f}")
    print("the three most probable worlds:")
    for world in program.most_probable(evidence=SEEN, k=3):
        shown = ", ".join(part for (part,) in world["broken"])
        print(f"  {world.probability:.4f} broken: {shown}")
    print("of disk, dns and cache alone:")
    for world in program.most_probable(evidence=SEEN, query={"broken": ["disk", "dns", "cache"]}, k=3):
        shown = ", ".join(part for (part,), broken in world.facts["broken"].items() if broken) or "none"
        print(f"  {world.probability:.4f} {shown}")


if __name__ == "__main__":
    main()
