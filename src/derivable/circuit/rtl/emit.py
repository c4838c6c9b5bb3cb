"""The SystemVerilog of a pipeline: a module `circuit`, what it includes, and the modules of its operations."""

from __future__ import annotations

from pathlib import Path

from derivable.circuit.rtl.arithmetic import Log
from derivable.circuit.rtl.pipeline import Pipeline

MODULES = Path(__file__).with_name("modules")
# What a value that is needed later waits in: registers up to FEW cycles, then memories of up to MOST cycles each.
FEW, MOST = 2, 17


def emit(made: Pipeline) -> dict[str, str]:
    """Text by name of file: the module `circuit`, its numbers, and what it is made of."""
    sizes = {
        "INPUTS": max(1, len(made.literals)),
        "INPUT_BITS": input_bits(made),
        "OUTPUTS": max(1, len(made.roots)),
        "OUTPUT_BITS": output_bits(made),
        "LATENCY": made.latency,
    }
    files = {"circuit.svh": _constants(sizes), "circuit.sv": _circuit(made, sizes)}
    names = ["later.sv", "circuit_host.sv", f"{made.arithmetic.name}_product.sv", f"{made.arithmetic.name}_sum.sv"]
    files |= {name: (MODULES / name).read_text(encoding="utf-8") for name in names}
    if isinstance(made.arithmetic, Log):
        files["log_table.svh"] = _table(made.arithmetic)
    return files


def input_bits(made: Pipeline) -> int:
    return made.arithmetic.width if isinstance(made.arithmetic, Log) else made.arithmetic.bits + 1


def output_bits(made: Pipeline) -> int:
    return max((made.bits(root) for root in made.roots), default=1)


def _constants(sizes: dict[str, int]) -> str:
    lines = ["// Generated: the sizes of the circuit.", "/* verilator lint_off UNUSEDPARAM */"]
    lines += [f"localparam int {name} = {value};" for name, value in sizes.items()]
    return "\n".join([*lines, "/* verilator lint_on UNUSEDPARAM */"]) + "\n"


def _table(arithmetic: Log) -> str:
    table = arithmetic.table.tolist()
    bits, address = max(table).bit_length(), max(1, (len(table) - 1).bit_length())
    rows = "\n".join(f"    {address}'d{entry}: table_entry = {bits}'d{value};" for entry, value in enumerate(table))
    return f"""// Generated: log2(1 + 2^-d) in units of 2^-{arithmetic.bits}, for d in the same units.
localparam int TABLE_SIZE = {len(table)}, TABLE_BITS = {bits}, TABLE_ADDRESS = {address};
function automatic logic [TABLE_BITS-1:0] table_entry(input logic [TABLE_ADDRESS-1:0] of);
  case (of)
{rows}
    default: table_entry = '0;
  endcase
endfunction
"""


class _Waits:
    """The registers and memories in which values wait, made where they are first needed."""

    def __init__(self, made: Pipeline, lines: list[str]):
        """lines  of the module, to which theirs are added"""
        self.made, self.lines = made, lines
        # Of each value the cycles by which a later copy of it is late, and the lateness of memories that are read.
        self.copies: dict[int, set[int]] = {}
        self.memories: set[int] = set()

    def name(self, value: int, cycle: int) -> str:
        """The value as it is in a later cycle."""
        operation = self.made.operations[value]
        if operation.kind == "constant":
            return f"v{value}"
        late = cycle - operation.cycle
        known = self.copies.setdefault(value, {0})
        while late not in known:
            before = max(one for one in known if one < late)
            by = 1 if late - before <= FEW else min(late - before, MOST)
            self._wait(value, before, by)
            known.add(before + by)
        return _copy(value, late)

    def _wait(self, value: int, late: int, by: int) -> None:
        bits, of, to = self.made.bits(value), _copy(value, late), _copy(value, late + by)
        if by == 1:
            self.lines += [f"  reg [{bits - 1}:0] {to};", f"  always_ff @(posedge clk) {to} <= {of};"]
            return
        self.memories.add(by)
        self.lines.append(f"  wire [{bits - 1}:0] {to};")
        name = f"w{value}_{late + by}"
        self.lines.append(f"  later #(.BITS({bits})) {name} (.clk, .at, .from(from_{by}), .in({of}), .out({to}));")


def _copy(value: int, late: int) -> str:
    return f"v{value}_{late}" if late else f"v{value}"


def _circuit(made: Pipeline, sizes: dict[str, int]) -> str:
    body, literal = list[str](), 0
    waits = _Waits(made, body)
    arithmetic, wide = made.arithmetic, sizes["INPUT_BITS"]
    for number, of in enumerate(made.operations):
        bits = made.bits(number)
        if of.kind == "literal":
            body.append(f"  wire [{bits - 1}:0] v{number} = weights[{literal * wide}+:{wide}];  // {_literal(of.a)}")
            literal += 1
        elif of.kind == "constant":
            body.append(f"  wire [{bits - 1}:0] v{number} = {bits}'d{of.a};")
        else:
            start = max(made.operations[of.a].cycle, made.operations[of.b].cycle)
            a, b = waits.name(of.a, start), waits.name(of.b, start)
            body.append(f"  wire [{bits - 1}:0] v{number};")
            if isinstance(arithmetic, Log):
                options = f".W({bits})" + (f", .BIAS({arithmetic.bias})" if of.kind == "product" else "")
            else:
                options = f".A({made.bits(of.a)}), .B({made.bits(of.b)}), .Y({bits})"
                options += f", .BITS({arithmetic.bits})" if of.kind == "product" else ""
            module = f"{arithmetic.name}_{of.kind}"
            body.append(f"  {module} #({options}) n{number} (.clk, .a({a}), .b({b}), .y(v{number}));")
    for number, root in enumerate(made.roots):
        name, out = waits.name(root, made.latency), sizes["OUTPUT_BITS"]
        body.append(f"  assign values[{number * out}+:{out}] = {out}'({name});")
    if not made.roots:
        body.append("  assign values = '0;")
    pointers = [
        f"  reg [3:0] from_{by};\n  always_ff @(posedge clk) from_{by} <= rst ? 4'd{(1 - by) % 16} : from_{by} + 4'd1;"
        for by in sorted(waits.memories)
    ]
    return _HEAD.format(
        latency=made.latency,
        pointers="\n".join(pointers),
        body="\n".join(body),
    )


def _literal(of: int) -> str:
    return f"{'not ' if of < 0 else ''}x{abs(of)}"


_HEAD = """// Generated: a circuit as a pipeline. Weights of literals go in, values of roots come out.
//
// Timing: {latency} cycles, one evaluation a cycle; `rst` is synchronous, and what is on its way in it is lost.
module circuit (
    clk, rst, in_valid, weights, out_valid, values
);
  `include "circuit.svh"

  input wire clk;
  input wire rst;
  input wire in_valid;
  input wire [INPUTS*INPUT_BITS-1:0] weights;
  output wire out_valid;
  output wire [OUTPUTS*OUTPUT_BITS-1:0] values;

  reg [LATENCY:0] on_its_way;
  always_ff @(posedge clk) on_its_way <= rst ? '0 : {{on_its_way[LATENCY-1:0], in_valid}};
  assign out_valid = LATENCY == 0 ? in_valid : on_its_way[LATENCY-1];

  // Where memories of values that wait are written, and where they are read.
  reg [3:0] at;
  always_ff @(posedge clk) at <= rst ? 4'd0 : at + 4'd1;
{pointers}

{body}

  wire unused = &{{1'b0, rst, weights, on_its_way}};
endmodule
"""
