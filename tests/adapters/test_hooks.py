"""Hooks that adapters install on library functions: removal, and errors, which are logged."""

from __future__ import annotations

from typing import Any

import pytest

from tracer.adapters.hooks import log_errors, wrap


class Library:
    def greet(self, name: str) -> str:
        return f"Hello, {name}"


class Branch(Library):
    pass


def _louder(wrapped: Any, _: Any, args: Any, kwargs: Any) -> str:
    return f"{wrapped(*args, **kwargs)}!"


@pytest.mark.parametrize("target", [Library, Branch])
def test_removed_hook_restores_the_original_function(target: type[Library]) -> None:
    before = dict(vars(target))

    uninstall = wrap(target, "greet", _louder)
    greeting = target().greet("you")
    uninstall()

    assert (greeting, target().greet("you")) == ("Hello, you!", "Hello, you")
    assert dict(vars(target)) == before


def test_removed_hook_has_no_effect_if_another_hook_wraps_it() -> None:
    ours = wrap(Library, "greet", _louder)
    theirs = wrap(Library, "greet", _louder)

    ours()
    assert Library().greet("you") == "Hello, you!"

    theirs()
    assert Library().greet("you") == "Hello, you"


def test_hook_on_a_missing_function_is_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrap(Library, "wave", _louder)()

    assert not hasattr(Library, "wave")
    assert "hook_not_found" in caplog.text


def test_adapter_errors_are_logged_and_keyboard_interrupts_are_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with log_errors("greet"):
        raise LookupError("a payload: 4711")
    with pytest.raises(KeyboardInterrupt), log_errors("greet"):
        raise KeyboardInterrupt

    assert "adapter_failed" in caplog.text
    assert "4711" not in caplog.text
