"""Layers under DistributedDataParallel and FSDP: two processes have the gradients of one with the whole batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_gradients_are_those_of_the_whole_batch():
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = Path(__file__).with_name("several_processes.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launch, script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    errors = {tuple(line.split()[:2]): float(line.split()[2]) for line in done.stdout.splitlines()}
    assert len(errors) == 4 * 3
    assert max(errors.values()) < 1e-12
