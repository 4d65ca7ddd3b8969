"""A pytest plugin that records agents in memory, and compares their runs with trajectories.

Enable it with `-p tracer.testing`, or with `pytest_plugins = ["tracer.testing"]` in the
`conftest.py` of the root folder. It needs the extra `testing`. See `docs/guides/testing.md`.

Public modules:

- `trajectory`: the format of trajectory files, and the comparison of runs with them
"""

from tracer.errors import missing_extra

try:
    from tracer.testing.plugin import (
        Recorded,
        RecordedRun,
        pytest_addoption,
        pytest_runtest_makereport,
        pytest_unconfigure,
        recorded,
    )
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("tracer."):
        raise
    raise missing_extra("tracer.testing", "testing", error) from error

__all__ = [
    "Recorded",
    "RecordedRun",
    "pytest_addoption",
    "pytest_runtest_makereport",
    "pytest_unconfigure",
    "recorded",
]
