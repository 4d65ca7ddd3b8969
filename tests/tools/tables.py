"""Tables of cases: failures as short texts, for `assert … == []`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from reprlib import Repr
from typing import Any

_short = Repr()
_short.maxstring = _short.maxother = 200
_short.maxdict = _short.maxlist = 20
_short.maxlevel = 10


def wrong_values(function: Callable[[Any], object], expected: Mapping[Any, object]) -> list[str]:
    """Return the cases in which a function returns something else than expected.

    Args:
        function: Called with each key.
        expected: The result for each key.
    """
    failures = []
    for case, value in expected.items():
        try:
            result = function(case)
        except Exception as error:
            failures.append(f"{_short.repr(case)}: expected {_short.repr(value)}, got {error!r}")
            continue
        if result != value:
            failures.append(
                f"{_short.repr(case)}: expected {_short.repr(value)}, got {_short.repr(result)}"
            )
    return failures


def not_rejected(
    error: type[Exception],
    function: Callable[[Any], object],
    cases: Iterable[object],
    secret: str | None = None,
) -> list[str]:
    """Return the cases in which a function does not raise an error, or shows a secret in it.

    Args:
        error: The class of the expected error.
        function: Called with each case.
        cases: Its arguments.
        secret: Text that the message must not contain.
    """
    failures = []
    for case in cases:
        try:
            result = function(case)
        except error as raised:
            if secret is not None and secret in str(raised):
                failures.append(f"{_short.repr(case)}: the message contains {secret!r}")
        else:
            failures.append(
                f"{_short.repr(case)}: expected {error.__name__}, got {_short.repr(result)}"
            )
    return failures
