"""Compiled kernels on disk are of the texts that they were made from, those of kernels which they call among them."""

from derivable.datalog.machine import driver, proof_driver
from derivable.device.cpu import compiling


def test_a_kernel_is_compiled_again_when_one_that_it_calls_has_another_text(monkeypatch):
    function = proof_driver.run_proofs.py_func

    def stamp():
        return compiling._Locator(function).get_source_stamp()

    before, digest = stamp(), compiling._digest_of_file
    assert stamp() == before
    changed = {driver.__file__: b"another text"}
    monkeypatch.setattr(compiling, "_digest_of_file", lambda path: changed.get(path) or digest(path))
    assert stamp() != before
