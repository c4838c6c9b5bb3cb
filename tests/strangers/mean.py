"""An aggregate as a user writes it: the mean of a column."""

import derivable as dv

mean = dv.datalog.aggregate(
    "mean",
    dv.parallel.operator(lambda a, b: (a[0] + b[0], a[1] + b[1]), neutral=(0.0, 0)),
    lift=lambda x: (dv.cast(x, "float64"), 1),
    result=lambda state: state[0] / state[1],
    returns="f64",
)
