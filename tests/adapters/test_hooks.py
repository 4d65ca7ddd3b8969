"""Hooks in libraries of others go in and out without a trace, and never get in the way."""

from __future__ import annotations

from typing import Any

import pytest

from tracer.adapters.hooks import unharmed, wrap


class Library:
    def greet(self, name: str) -> str:
        return f"Hello, {name}"


class Branch(Library):
    pass


def _louder(wrapped: Any, _: Any, args: Any, kwargs: Any) -> str:
    return f"{wrapped(*args, **kwargs)}!"


@pytest.mark.parametrize("target", [Library, Branch])
def test_a_hook_that_is_taken_back_leaves_the_library_as_it_was(target: type[Library]) -> None:
    before = dict(vars(target))

    take_back = wrap(target, "greet", _louder)
    greeting = target().greet("you")
    take_back()

    assert (greeting, target().greet("you")) == ("Hello, you!", "Hello, you")
    assert dict(vars(target)) == before


def test_a_hook_that_others_have_wrapped_since_does_nothing_once_it_is_taken_back() -> None:
    ours = wrap(Library, "greet", _louder)
    theirs = wrap(Library, "greet", _louder)

    ours()
    assert Library().greet("you") == "Hello, you!"

    theirs()
    assert Library().greet("you") == "Hello, you"


def test_a_library_without_the_hook_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    wrap(Library, "wave", _louder)()

    assert not hasattr(Library, "wave")
    assert "hook_not_found" in caplog.text


def test_what_goes_wrong_with_recording_is_logged_and_what_cancels_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with unharmed("greet"):
        raise LookupError("a payload: 4711")
    with pytest.raises(KeyboardInterrupt), unharmed("greet"):
        raise KeyboardInterrupt

    assert "adapter_failed" in caplog.text
    assert "4711" not in caplog.text
