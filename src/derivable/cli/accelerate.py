"""`derivable accelerate MODEL.py:build -o DIR`: an accelerator for a model, with its files and its report."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from derivable.cli.report import write_facts, write_json
from derivable.cli.user_file import failure, from_file
from derivable.core.diagnostics import DerivableError, LimitError, UnsupportedError
from derivable.core.files import atomic_write
from derivable.core.lazy import optional_module
from derivable.core.progress import progress

if TYPE_CHECKING:
    from derivable.accelerator.designs.designs import Design
    from derivable.accelerator.hardware.batch import Batch
    from derivable.accelerator.hardware.simulation import Backend
    from derivable.accelerator.numbers.emulation import Counts


@click.command("accelerate")
@click.argument("model", metavar="MODEL.py:BUILD|MODEL.onnx")
@click.option("-o", "--output", required=True, type=click.Path(), metavar="DIR", help="Folder to write.")
@click.option("--pes", type=int, default=1024, show_default=True, help="Processing elements, at most.")
@click.option("--device", default="u250", show_default=True, help="u250, u55c, zcu104, or a TOML file like theirs.")
@click.option(
    "--precision",
    default="int8/int4",
    show_default=True,
    help="Of the neural and the symbolic part: int8, int4, fp16, fp8; or of layers, as in conv1=int8,*=int4.",
)
@click.option("--symbolic", multiple=True, metavar="MODULE", help="A module of the symbolic part. May be repeated.")
@click.option(
    "--calibrate",
    type=click.Path(),
    metavar="FILE.npz",
    help="Arrays by the names of the inputs, from which the ranges of numbers come: each k times as long along its "
    "first axis as the example's, k samples. Otherwise the example alone is the sample.",
)
@click.option(
    "--simulate",
    type=click.Choice(["verilator", "icarus", "python"]),
    help="Run the hardware on the example inputs, and set its cycles beside the model in the report.",
)
@click.option(
    "--run",
    "run_on",
    type=click.Path(),
    metavar="FILE",
    help="Run the hardware on the samples of a file, a pass at a time, in what --simulate names, else on the golden "
    "machine: .npz by the names of the inputs, .npy or .csv of the only one, k times as long as the example along its "
    "first axis for k passes.",
)
@click.option(
    "--outputs",
    type=click.Path(),
    metavar="FILE",
    help="Where the outputs of --run go: .npz, or .npy or .csv of the only one. [default: DIR/outputs.npz]",
)
@click.option(
    "--place",
    metavar="DEVICE",
    help="Put the hardware through Yosys and nextpnr on ecp5-85k, ecp5-45k, gw2a-18 or a TOML file like theirs, and "
    "report the clock that it reaches; takes minutes.",
)
@click.option(
    "--sweep",
    metavar="DIMENSIONS",
    is_flag=False,
    flag_value="",
    help="Count the cycles, energy and resources of many designs, and write sweep.csv and sweep.svg: all arrays and "
    "lanes, or what is named, as in `lanes=16,32 ports=2,4 bandwidths=19e9,77e9 heights=4,8 widths=16 passes=2`.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the design in numbers.")
def accelerate_command(
    model: str,
    output: str,
    pes: int,
    device: str,
    precision: str,
    symbolic: tuple[str, ...],
    calibrate: str | None,
    simulate: Backend | None,
    run_on: str | None,
    outputs: str | None,
    place: str | None,
    sweep: str | None,
    as_json: bool,
) -> None:
    """Design an accelerator and write it to DIR: design.yaml, its constants, report.html, nodes.csv and nodes.json, and
    the SystemVerilog in rtl/ with a testbench that compares the outputs for the example inputs
    (`make -C DIR/rtl test`), the program, and a driver for XRT in host/.

    BUILD is a function in MODEL.py without arguments that returns a torch.nn.Module (or a function of tensors) and
    example inputs: `return model, torch.rand(1, 3, 32, 32)`. A file of ONNX takes its inputs from --calibrate; the
    first of them are the example, axes without a size are 1 long.
    """
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise DerivableError("this is a file, not a folder", source=output, hint="name a folder after -o")
    if not output:
        raise DerivableError("the name of the folder is empty", hint="name a folder after -o")
    if place:
        from derivable.accelerator.hardware.placement import placeable

        placeable(place)
    if outputs is not None and run_on is None:
        raise DerivableError("--outputs without --run", hint="name the file with the samples: --run FILE.npz")
    from derivable.accelerator.designs.samples import checked_suffix, read_named

    if run_on is not None:
        for file in filter(None, (run_on, outputs)):
            checked_suffix(file)
        if not Path(run_on).is_file():
            raise DerivableError(
                "there is no such file", source=run_on, hint="name the file with the samples after --run"
            )
    dimensions = None if sweep is None else _dimensions(sweep)
    with progress("designing", 5 + bool(run_on) + bool(place) + (dimensions is not None)) as advance:
        samples = None if calibrate is None else read_named(calibrate)
        network, example = _of_onnx(model, samples) if model.endswith(".onnx") else _built(model)
        advance(note="explore")
        from derivable.accelerator.designs.designs import CalibrationWarning, design
        from derivable.accelerator.designs.report import write_report
        from derivable.accelerator.designs.texts import summary_rows

        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", CalibrationWarning)
            calibration = None if samples is None else [samples]
            made = design(network, example, pes, device, precision, symbolic=symbolic, calibration=calibration)
        for text in (str(note.message) for note in noted if issubclass(note.category, CalibrationWarning)):
            if "come from one sample" in text:
                text = (
                    "the ranges of numbers come from the example inputs alone, and numbers of other inputs beyond them "
                    "saturate; give samples with --calibrate FILE.npz"
                )
            click.echo(f"note: {text}", err=True)
        advance(note="save")
        made.save(folder)
        advance(note="hardware")
        from derivable.accelerator.trace.trace import flat_inputs

        inputs = flat_inputs(network, example)
        hardware = _hardware(made, folder, inputs)
        advance(note="simulate" if simulate else "report")
        run = made.simulate(inputs, simulate) if simulate else None
        batch, backend = None, simulate or "python"
        outputs_file = Path(outputs or folder / "outputs.npz")
        if run_on is not None:
            advance(note="run")
            batch = _run_samples(made, run_on, outputs_file, backend)
        placed = None
        if place:
            advance(note="place")
            placed = made.place(place)
        written = write_report(made, folder, run, placed)
        tried = None
        if dimensions is not None:
            advance(note="sweep")
            tried = made.sweep(**dimensions)
            written += [tried.write_csv(folder / "sweep.csv"), tried.plot(folder / "sweep.svg")]
        advance()
    if as_json:
        write_json(
            {
                "directory": output,
                "height": made.height,
                "width": made.width,
                "sub_arrays": made.sub_arrays,
                "partition": list(made.partition),
                "pass_cycles": made.pass_cycles(),
                "busy": made.busy,
                "cycles": made.cycles,
                "seconds": made.seconds,
                "hardware": hardware,
                "simulated_cycles": None if run is None else run.cycles,
                "run": None
                if batch is None
                else {
                    "backend": backend,
                    "cycles": batch.cycles.tolist(),
                    "total_cycles": batch.total,
                    **asdict(batch.lost),
                    "outputs": str(outputs_file),
                },
                "placed": None if placed is None else asdict(placed),
                "sweep": None if tried is None else [point.record() for point in tried.pareto()],
                "files": ["design.yaml", *(path.name for path in written)],
            }
        )
        return
    rows = [*summary_rows(made), ("hardware", hardware)]
    if run is not None:
        rows.append(("lost", _lost(run.lost)))
        rows.append(("simulated", f"{run.cycles:,} cycles for one pass in {simulate}, {run.modelled:,} modelled"))
    if batch is not None:
        least, most = batch.cycles.min(), batch.cycles.max()
        each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        passes = f"{batch.passes:,} passes in {backend}, {each} cycles each, {batch.total:,} in all"
        rows.append(("run", f"{passes}, all bits as the emulation has them"))
        rows.append(("of them lost", _lost(batch.lost)))
        rows.append(("outputs", str(outputs_file)))
    if placed is not None:
        rows += placed.rows()
    write_facts([*rows, ("report", str(written[0]))])
    if tried is not None:
        click.echo(f"\n{tried}\nall of them: {folder / 'sweep.csv'}, {folder / 'sweep.svg'}")


def _dimensions(text: str) -> dict[str, Any]:
    """The arguments of `Design.sweep` in a text such as `lanes=16,32 ports=2,4`. Raises DerivableError for others."""
    dimensions: dict[str, Any] = {}
    for part in text.split():
        name, _, values = part.partition("=")
        number = float if name == "bandwidths" else int
        if name not in ("heights", "widths", "lanes", "ports", "bandwidths", "passes"):
            raise DerivableError(
                f"--sweep has no dimension {name!r}", hint="there are heights, widths, lanes, ports, bandwidths, passes"
            )
        try:
            listed = [number(value) for value in values.split(",")]
        except ValueError:
            raise DerivableError(f"--sweep has {part!r}", hint="write numbers, as in lanes=16,32") from None
        if name == "passes" and len(listed) != 1:
            raise DerivableError(f"--sweep has {part!r}", hint="give one number of passes")
        dimensions[name] = listed[0] if name == "passes" else listed
    return dimensions


def _lost(lost: Counts) -> str:
    return f"{lost.saturated:,} numbers saturated, {lost.flushed:,} flushed to zero of {lost.numbers:,}"


def _run_samples(made: Design, path: str, target: Path, backend: Backend) -> Batch:
    """Run a design on the samples of a file and write the outputs into another one."""
    from derivable.accelerator.designs import samples
    from derivable.accelerator.hardware.host import names_of_outputs

    inputs = samples.read(path, {name: made.graph[name].shape for name in made.graph.inputs})
    names = names_of_outputs(made.lowered)
    samples.check_outputs(target, names)  # before a run that may take hours
    batch = made.run(inputs, backend)
    samples.write(target, dict(zip(names, batch.outputs, strict=True)))
    return batch


def _hardware(made: Design, folder: Path, inputs: Any) -> str:
    """Write the kit of a design, its driver and its program, if the hardware has all that it needs; says which."""
    from derivable.accelerator.hardware import host
    from derivable.accelerator.machine import machine

    try:
        lowered = made.lowered
    except (UnsupportedError, LimitError) as error:
        # The design stands; what no hardware is generated for, is said.
        stale = "; rtl/ and host/ in the folder are of an earlier design" if (folder / "rtl").exists() else ""
        return f"not generated: {error.message}{stale}"
    made.write_kit(folder / "rtl", inputs)
    host.write(lowered, folder / "host")
    with atomic_write(folder / "program.txt") as file:
        file.write(f"{lowered.program}\n")
    _, end = machine.timing(lowered.machine, lowered.program)
    program = f"{len(lowered.program)} instructions, modelled latency {int(end[-1]):,} cycles"
    return f"{lowered.machine}, {program}, in {folder / 'rtl'}"


def _of_onnx(path: str, samples: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
    """The module of a file of ONNX, and the first of the samples as its example inputs."""
    optional_module("torch", "torch", "torch")
    from derivable.accelerator.trace.onnx_file import input_shapes, module_of_onnx

    module = module_of_onnx(path)
    shapes = input_shapes(module)
    if samples is None or set(samples) != set(shapes):
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        has = "" if samples is None else f", and the samples are of {', '.join(samples)}"
        raise DerivableError(
            f"the model has the inputs {listed}{has}",
            source=path,
            hint="give samples of them with --calibrate FILE.npz, whose first are the example",
        )
    return module, {name: samples[name][: shape[0]] if shape else samples[name] for name, shape in shapes.items()}


def _built(reference: str) -> tuple[Any, Any]:
    build = from_file(reference, "function", callable)
    if build is None:
        raise DerivableError(
            f"{reference!r} names no function in a Python file",
            hint="write MODEL.py:build, or the name of a file of ONNX",
        )
    try:
        built = build()
    except DerivableError:
        raise
    except (Exception, SystemExit) as error:
        path, _, name = reference.rpartition(":")
        raise failure(path, error, f"{name} fails") from error
    if not isinstance(built, tuple) or len(built) != 2:
        what = f"a tuple of {len(built)}" if isinstance(built, tuple) else type(built).__name__
        raise DerivableError(
            f"{reference} returns {what}, expected a model and its example inputs",
            hint="return model, example_inputs",
        )
    if not callable(built[0]) and callable(built[1]):
        raise DerivableError(
            f"{reference} returns {type(built[0]).__name__} in the place of the model", hint="the model comes first"
        )
    return built
