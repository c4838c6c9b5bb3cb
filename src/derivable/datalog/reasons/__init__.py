"""Why a tuple holds, and why one does not: proofs that are searched in tables after a run."""
