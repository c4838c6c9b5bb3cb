"""Why may this variable point to that object? A proof of a points-to fact, rule by rule, down to the statements.

    python examples/points_to.py

Andersen's analysis of a small program. Its answer is a set of pairs. A warning that is made of them needs a reason:
where a pair comes from, and why another one is missing.
"""

import derivable as dv

PROGRAM = """
// Statements: x = new o, x = y, x = y.f, x.f = y.
type alloc(variable: String, object: String), copy(to: String, from: String)
type load(to: String, base: String, field: String), store(base: String, field: String, from: String)

rel points_to(x, o) = alloc(x, o)
rel points_to(x, o) = copy(x, y), points_to(y, o)
rel held(o, f, p) = store(x, f, y), points_to(x, o), points_to(y, p)
rel points_to(x, p) = load(x, y, f), points_to(y, o), held(o, f, p)
query points_to
"""
STATEMENTS = {
    "alloc": [("cache", "Cache@1"), ("request", "Request@2"), ("secret", "Key@3")],
    "copy": [("shared", "cache"), ("session", "request")],
    "store": [("shared", "last", "session"), ("request", "key", "secret")],
    "load": [("found", "cache", "last"), ("leaked", "found", "key")],
}


def database() -> dv.datalog.Database:
    return dv.Program(PROGRAM).run(STATEMENTS)


def main() -> None:
    found = database()
    proof = found.why("points_to", ("leaked", "Key@3"))
    print(proof)
    print(f"\n{len(proof.facts)} of {sum(map(len, STATEMENTS.values()))} statements, {proof.height} rules deep\n")
    print(found.why_not("points_to", ("cache", "Key@3")))


if __name__ == "__main__":
    main()
