"""Sessions of engines that speak Spark's protocol, and what goes wrong in them.

Of the DataFrame API only what Spark Connect has is used, and SQL expressions, which need no functions of PySpark's.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import re
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from derivable.core import diagnostics
from derivable.core.diagnostics import DerivableError, DomainError, MissingDependencyError
from derivable.core.lazy import optional_module

# For an address to answer.
SECONDS = 5.0
# The server that `engine="sail"` has started, and its session.
_sail: list[Any] = []
_RAISED = re.compile(r"derivable\.core\.diagnostics\.(\w+): (.*)", re.DOTALL)
_GONE = re.compile(
    r"UNAVAILABLE|Connection refused|SESSION_CLOSED|SESSION_CHANGED|INVALID_HANDLE|SESSION_NOT_FOUND|session not found"
    r"|NO_ACTIVE_SESSION|RETRIES_EXCEEDED|failed to connect|closed channel|stopped SparkContext|after being closed",
    re.IGNORECASE,
)


def session_of(engine: Any) -> Any:
    """The session of an engine: a SparkSession, "sail", or the address of a Spark Connect server, "sc://host:port".

    Raises DomainError for anything else, MissingDependencyError without `pyspark` or, for "sail", `pysail`.
    """
    if isinstance(engine, str) and engine == "sail":
        return _sail_session()
    if isinstance(engine, str) and engine.startswith("sc://"):
        _check_address(engine)
        with session_errors(f"the session at {engine}"):
            return _builder().remote(engine).getOrCreate()
    if not isinstance(engine, str) and hasattr(engine, "createDataFrame") and hasattr(engine, "sql"):
        check_session(engine)
        return engine
    raise DomainError(
        f"{engine!r} is no engine", hint='give a SparkSession, engine="sail", or an address such as "sc://host:15002"'
    )


def _check_address(address: str) -> None:
    """Raises DomainError where nobody listens: PySpark tries again for ten minutes."""
    host, _, rest = address.removeprefix("sc://").partition(":")
    port = re.match(r"\d+", rest)
    try:
        socket.create_connection((host.partition("/")[0], int(port[0]) if port else 15002), SECONDS).close()
    except OSError as error:
        raise DomainError(
            f"nobody listens at {address}: {error}", hint="start the server, or correct the address"
        ) from None


def check_session(session: Any) -> None:
    """Raises DomainError for a session that is gone, at once: PySpark tries again for ten minutes."""
    with session_errors("the session"):
        if ".connect." not in type(session).__module__:
            session.conf.get("spark.sql.shuffle.partitions", "200")
            return
        client = session.client
        retries = importlib.import_module("pyspark.sql.connect.client.retries")
        policies = client.get_retry_policies()
        client.set_retry_policies([retries.DefaultPolicy(max_retries=1)])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                client.get_configs("spark.sql.shuffle.partitions")
        finally:
            client.set_retry_policies(policies)


def session_number(session: Any) -> str:
    """What DataFrames that go together have in common: those of Spark Connect have a session, others a process."""
    return str(getattr(session, "session_id", "")) if ".connect." in type(session).__module__ else ""


def _builder() -> Any:
    with warnings.catch_warnings():
        # PySpark warns of versions of pandas that are newer than it is.
        warnings.simplefilter("ignore", FutureWarning)
        package = optional_module("pyspark", "pyspark-client", "spark")
        with _home_of(Path(package.__path__[0])):
            optional_module("pyspark.sql.connect.session", "pyspark-client", "spark")
        return optional_module("pyspark.sql", "pyspark-client", "spark").SparkSession.builder


@contextmanager
def _home_of(package: Path) -> Iterator[None]:
    """`pyspark-client` has no jars, and as it is imported ends the process where there is no folder of them."""
    if "SPARK_HOME" in os.environ or (package / "jars").is_dir():
        yield
        return
    os.environ["SPARK_HOME"] = str(package)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _sail_session() -> Any:
    """A session of a Sail server in this process, which is started once."""
    if not _sail:
        builder = _builder()
        spark = optional_module("pysail.spark", "pysail", "spark")
        # Sail says at its start, and of each session, what it does.
        os.environ.setdefault("RUST_LOG", "error")
        server = spark.SparkConnectServer("127.0.0.1", 0)
        server.start(background=True)
        host, port = server.listening_address
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            _sail.extend([server, builder.remote(f"sc://{host}:{port}").create()])
        atexit.register(_stop_sail)
    return _sail[1]


def is_local(session: Any) -> bool:
    """Whether an engine is known to run on this machine, and sees its files."""
    if _sail and session is _sail[1]:
        return True
    if ".connect." in type(session).__module__:
        return False
    return str(session.sparkContext.master).startswith("local")


def _stop_sail() -> None:
    """End the server before Python ends, whose threads run code of Python's."""
    server, session = _sail
    with contextlib.suppress(Exception):
        session.stop()
    server.stop()


@contextmanager
def session_errors(what: str) -> Iterator[None]:
    """Say in our words what an engine raises in this block; `what` is what was being done or read."""
    try:
        yield
    except (DerivableError, KeyboardInterrupt):
        raise
    except Exception as error:
        translated = _translated(error, what)
        if translated is None:
            raise
        raise translated from None


def _translated(error: Exception, what: str) -> DerivableError | None:
    kind = type(error)
    if not any(one.__module__.startswith(("pyspark", "grpc", "py4j")) for one in kind.__mro__):
        return None
    text = str(error)
    raised = _RAISED.search(text)
    if raised is not None:
        raised_kind = getattr(diagnostics, raised[1], DomainError)
        message, _, hint = raised[2].partition("\nhelp: ")
        return raised_kind(message.removeprefix("error: ").strip(), hint=hint.splitlines()[0] if hint else None)
    if "No module named 'derivable'" in text:
        return MissingDependencyError(
            "derivable is not installed where the partitions run", hint="install it on the workers of the engine too"
        )
    first = next((line for line in text.splitlines() if line.strip()), kind.__name__)
    if _GONE.search(text):
        hint = "make a new SparkSession and run the program again; what was run before has written nothing"
        return DomainError(f"{what}: the session of the engine is gone ({first.strip()[:200]})", hint=hint)
    return DomainError(f"{what}: the engine says: {first.strip()[:400]}")
