"""Makes scale_sim.json: compute cycles of SCALE-Sim 3.0.0 for products of matrices on one systolic array.

    python -m venv scratch && scratch/bin/pip install scalesim==3.0.0 'numpy<2' 'pandas<2.3'
    scratch/bin/python tests/accelerator/make_scale_sim.py

Bandwidth is calculated, so that nothing stalls; a case is [dataflow, height, width, m, k, n, cycles].
"""

import csv
import itertools
import json
import tempfile
from importlib.metadata import version
from pathlib import Path

from scalesim.scale_sim import scalesim

HERE = Path(__file__).parent
ARRAYS = [(4, 4), (8, 4), (4, 8), (8, 16), (16, 16), (32, 8)]
SHAPES = [
    *itertools.product((1, 7, 32), (3, 16, 50), (1, 8, 37)),  # less than an array, an array, several folds
    (64, 144, 64),
    (100, 27, 16),
]
CONFIGURATION = """
[general]
run_name = run
[architecture_presets]
ArrayHeight = {height}
ArrayWidth = {width}
IfmapSramSzkB = 1024
FilterSramSzkB = 1024
OfmapSramSzkB = 1024
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Dataflow = {dataflow}
Bandwidth = 10
ReadRequestBuffer = 64
WriteRequestBuffer = 64
[layout]
IfmapCustomLayout = False
FilterCustomLayout = False
IfmapSRAMBankBandwidth = 10
IfmapSRAMBankNum = 10
IfmapSRAMBankPort = 2
FilterSRAMBankBandwidth = 10
FilterSRAMBankNum = 10
FilterSRAMBankPort = 2
[sparsity]
SparsitySupport = false
SparseRep = ellpack_block
OptimizedMapping = false
BlockSize = 8
RandomNumberGeneratorSeed = 40
[run_presets]
InterfaceBandwidth = CALC
UseRamulatorTrace = False
"""


def cycles(dataflow: str, height: int, width: int, folder: Path) -> list[int]:
    configuration, topology = folder / "run.cfg", folder / "shapes.csv"
    configuration.write_text(CONFIGURATION.format(dataflow=dataflow, height=height, width=width))
    rows = [f"layer{i}, {m}, {n}, {k}," for i, (m, k, n) in enumerate(SHAPES)]
    topology.write_text("\n".join(["Layer, M, N, K,", *rows]) + "\n")
    simulator = scalesim(True, False, str(configuration), str(topology), str(topology), input_type_gemm=True)
    simulator.run_scale(top_path=str(folder))
    with open(folder / "run" / "COMPUTE_REPORT.csv") as report:
        return [int(float(row[" Total Cycles"])) for row in csv.DictReader(report)]


def main() -> None:
    cases = []
    for dataflow, (height, width) in itertools.product(("ws", "os"), ARRAYS):
        with tempfile.TemporaryDirectory() as folder:
            found = cycles(dataflow, height, width, Path(folder))
        cases += [[dataflow, height, width, *shape, count] for shape, count in zip(SHAPES, found, strict=True)]
    lines = ",\n  ".join(json.dumps(case) for case in cases)
    text = f'{{"scalesim": "{version("scalesim")}",\n "cases": [\n  {lines}\n ]}}\n'
    (HERE / "scale_sim.json").write_text(text)


if __name__ == "__main__":
    main()
