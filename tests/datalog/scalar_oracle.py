"""What expressions of the core rules mean, in plain Python numbers: the language's rules written down once more.

Integers are Python's, so that overflow is seen by comparison with the limits. It shares nothing with the engine but the
nodes of the rules.
"""

import math
from decimal import Decimal

import numpy as np

from derivable.datalog.scalars.nodes import Const, Var


class NoValueError(Exception):
    """The expression has no value: the row is dropped."""


def fit(value, t, saturate):
    low, high = t.limits
    if saturate:
        return max(low, min(high, value))
    return (value - low) % (1 << t.bits) + low


def evaluate(e, row):
    """The value of an expression for one row, a dictionary of Python numbers and strings."""
    if isinstance(e, Var):
        return row[e.name]
    if isinstance(e, Const):
        return rounded(e.value, e.type)
    if e.operator == "if":
        condition, then, otherwise = e.operands
        return evaluate(then if evaluate(condition, row) else otherwise, row)
    values = [evaluate(operand, row) for operand in e.operands]
    if e.operator == "cast":
        return cast(values[0], e.operands[0].type, e.type)
    if e.operator == "!":
        return not values[0]
    if e.operator == "neg":
        return fit(-values[0], e.type, True) if e.type.is_integer else -values[0]
    a, b = values
    match e.operator:
        case "==":
            return a == b
        case "!=":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case ">=":
            return a >= b
        case "&&":
            return a and b
        case "||":
            return a or b
        case "^":
            return a != b
    if e.type.family == "text":
        return a + b
    if e.type.is_integer:
        return integer(e.operator, a, b, e.type)
    with np.errstate(all="ignore"):
        kind = np.float32 if e.type.bits == 32 else np.float64
        x, y = kind(a), kind(b)
        result = {"+": x + y, "-": x - y, "*": x * y, "/": np.divide(x, y), "%": np.fmod(x, y)}[e.operator]
    if np.isnan(result):
        raise NoValueError
    return float(result)


def integer(operator, a, b, t):
    match operator:
        case "+":
            return fit(a + b, t, True)
        case "-":
            return fit(a - b, t, True)
        case "+!" | "-!":
            exact = a + b if operator == "+!" else a - b
            if not t.limits[0] <= exact <= t.limits[1]:
                raise NoValueError
            return exact
        case "*":
            return fit(a * b, t, False)
    if b == 0 or (t.family == "signed" and b == -1 and a == t.limits[0]):
        raise NoValueError
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if operator == "/" else a - quotient * b


def rounded(value, t):
    return float(np.float32(value)) if t.family == "float" and t.bits == 32 else value


def nearest_float32(value):
    """The float nearest to an integer, of two the one with an even last bit; there are none from 2^128 on."""
    with np.errstate(over="ignore"):
        close = np.float32(value)
        around = [np.nextafter(close, np.float32(-np.inf)), close, np.nextafter(close, np.float32(np.inf))]
    exact = [2**128 * int(np.sign(x)) if np.isinf(x) else int(x) for x in around]
    best = min(range(3), key=lambda k: (abs(exact[k] - value), int(around[k].view(np.uint32)) % 2))
    return float(around[best])


def float_text(value, t):
    """Decimals without an exponent, as few as tell the number from its neighbours; a column holds no -0.0."""
    value += 0.0
    if math.isinf(value):
        return str(value)
    text = format(Decimal(str(np.float32(value)) if t.bits == 32 else repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def cast(value, source, target):
    if source == target:
        return value
    if source.family == "text":
        try:
            if target.family == "float":
                if math.isnan(float(value)):
                    raise NoValueError
                return rounded(float(value), target)
            if target.is_integer:
                number = int(value)
                if target.limits[0] <= number <= target.limits[1]:
                    return number
            if target.family == "text":
                return value
            if target.family == "bool" and value in ("true", "false"):
                return value == "true"
            if target.family == "char" and len(value) == 1:
                return value
        except ValueError:
            pass
        raise NoValueError
    if target.family == "text":
        if source.family == "bool":
            return "true" if value else "false"
        return float_text(value, source) if source.family == "float" else str(value)
    if source.family == "char":
        if target.family == "bool":
            return value != "\0"
        if value not in "0123456789":
            raise NoValueError
        value = int(value)
    if target.family == "float":
        if source.is_integer and target.bits == 32:
            return nearest_float32(value)
        with np.errstate(over="ignore"):
            return rounded(float(value), target)
    if target.family == "bool":
        return bool(value)
    if target.family == "char":
        if math.isinf(value) or not 0 <= int(value) <= 0x10FFFF or 0xD800 <= int(value) <= 0xDFFF:
            raise NoValueError
        return chr(int(value))
    if source.family == "float":
        return fit(int(max(min(value, 2.0**200), -(2.0**200))), target, True)
    return fit(int(value), target, False)
