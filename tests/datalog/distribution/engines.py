"""The engines that tests run on, each where it is installed."""

import importlib.util

import pytest

HAS_SAIL = importlib.util.find_spec("pysail") is not None and importlib.util.find_spec("pyspark") is not None
needs_sail = pytest.mark.skipif(not HAS_SAIL, reason="pysail and pyspark-client are not installed")


def sail():
    """The session of the server in this process."""
    from derivable.datalog.distribution.session import session_of

    return session_of("sail")
