"""The embedded Postgres."""

from pathlib import Path

MAJOR_VERSION = 18


def cluster_directory(home: Path) -> Path:
    """Return the directory of the server's data, socket, log and locks below `TRACER_HOME`."""
    return home / f"postgres-{MAJOR_VERSION}"


def is_prepared(home: Path) -> bool:
    """Return whether the data exists. If not, the next start creates it, which takes seconds."""
    return (cluster_directory(home) / "data").exists()
