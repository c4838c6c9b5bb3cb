"""The alarm network (Pearl, 1988) as a Datalog program: who called, so was there a burglary?

    python examples/bayesian_network.py

Each row of a conditional table is one exclusive fact; the posterior is a quotient of two exact probabilities.
"""

import derivable as dv

NETWORK = """
type burglary(bool), earthquake(bool), alarm(bool), john(bool), mary(bool)
type alarm_row(bool, bool, bool), john_row(bool, bool), mary_row(bool, bool)

rel burglary = {0.001::(true); 0.999::(false)}
rel earthquake = {0.002::(true); 0.998::(false)}

rel alarm_row = {0.95::(true, true, true); 0.05::(true, true, false)}
rel alarm_row = {0.94::(true, false, true); 0.06::(true, false, false)}
rel alarm_row = {0.29::(false, true, true); 0.71::(false, true, false)}
rel alarm_row = {0.001::(false, false, true); 0.999::(false, false, false)}
rel alarm(a) = burglary(b), earthquake(e), alarm_row(b, e, a)

rel john_row = {0.9::(true, true); 0.1::(true, false)}
rel john_row = {0.05::(false, true); 0.95::(false, false)}
rel john(j) = alarm(a), john_row(a, j)

rel mary_row = {0.7::(true, true); 0.3::(true, false)}
rel mary_row = {0.01::(false, true); 0.99::(false, false)}
rel mary(m) = alarm(a), mary_row(a, m)

rel both_call() = john(true), mary(true)
rel cause("burglary") = burglary(true), both_call()
rel cause("earthquake") = earthquake(true), both_call()

query both_call
query cause
"""


def main() -> None:
    database = dv.Program(NETWORK).run(provenance="exact")
    evidence = database["both_call"][()]
    print(f"P(both call) = {evidence:.6f}")
    for name in ("burglary", "earthquake"):
        print(f"P({name} | both call) = {database['cause'][(name,)] / evidence:.4f}")


if __name__ == "__main__":
    main()
