"""The two test profiles: quick (`make test`) and thorough (`make test-thorough`).

`pytest --thorough` selects the thorough profile. Without it, tests marked `thorough` are
deselected, and Hypothesis tries few examples: the same ones in every run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import hypothesis
import pytest

QUICK_EXAMPLES = 15
_COUNT = "thorough_tests"  # sent by a worker of pytest-xdist to the controller
_thorough_tests = pytest.StashKey[int]()

_common = hypothesis.settings(
    deadline=None,  # tests are never timed: the machine may be busy
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        # Examples share stores and directories, but each creates its own records in them.
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.register_profile("thorough", _common)
hypothesis.settings.register_profile(
    "quick", _common, max_examples=QUICK_EXAMPLES, derandomize=True
)
hypothesis.settings.load_profile("quick")


def scaled(examples: int) -> int:
    """Return the number of Hypothesis examples to try in this profile.

    Use it wherever a test sets `max_examples` itself, which overrides the profile's number.
    """
    is_thorough = hypothesis.settings.get_current_profile_name() == "thorough"
    return examples if is_thorough else min(examples, QUICK_EXAMPLES)


def beginnings(length: int, examples: int) -> range:
    """Return at least `scaled(examples)` sizes of beginnings of a sequence.

    Args:
        length: The length of the sequence.
        examples: How many sizes the thorough profile tries, from 1 on.
    """
    return range(1, length + 1, max(length // scaled(examples), 1))


def quick_among(values: Iterable[object], quick: Collection[object]) -> list[Any]:
    """Return the values of a parameter, of which the quick profile runs only `quick`."""
    return [
        value if value in quick else pytest.param(value, marks=pytest.mark.thorough)
        for value in values
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--thorough`."""
    parser.addoption(
        "--thorough",
        action="store_true",
        help="also run the tests marked `thorough`, and try more Hypothesis examples",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the Hypothesis profile before any test module is imported."""
    config.stash[_thorough_tests] = 0
    if config.option.thorough:
        hypothesis.settings.load_profile("thorough")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests marked `thorough` in the quick profile."""
    if config.option.thorough:
        return
    thorough = [item for item in items if item.get_closest_marker("thorough")]
    config.stash[_thorough_tests] = len(thorough)
    if thorough:
        config.hook.pytest_deselected(items=thorough)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a worker's count to the controller, which collects nothing itself."""
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:  # else this is no worker
        output[_COUNT] = session.config.stash[_thorough_tests]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print how many tests the thorough profile adds."""
    if count := config.stash[_thorough_tests]:
        terminalreporter.write_line(f"`make test-thorough` adds {count:,} tests to these.")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive the count of a pytest-xdist worker; all workers collect the same tests."""
    node.config.stash[_thorough_tests] = getattr(node, "workeroutput", {}).get(_COUNT, 0)
