"""Files of tools as the tests write and read them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tracer.errors import RegistrationError
from tracer.tools import ToolRegistry
from tracer.tools.config import read_tools
from tracer.tools.parameters import UserId

FILE = "tools.toml"


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def greet(user_id: UserId, greeting: str) -> str:
    """Greet the caller."""
    return greeting + ("!" if user_id == "user-123" else "?")


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def execute(self, by: int = 1) -> int:
        """Count on."""
        self.count += by
        return self.count


FUNCTIONS: dict[str, Any] = {"add": add, "greet": greet, "Counter": Counter}


def read(folder: Path, text: str, **given: Any) -> ToolRegistry:
    path = folder / FILE
    path.write_text(dedent(text), encoding="utf-8")
    return read_tools(path, **{"functions": FUNCTIONS, **given})


def problems_of(folder: Path, text: str, **given: Any) -> list[str]:
    with pytest.raises(RegistrationError) as caught:
        read(folder, text, **{"strict": True, **given})
    first, *problems = str(caught.value).split("\n- ")
    assert first == f"{FILE} has errors. Correct them:"
    return problems
