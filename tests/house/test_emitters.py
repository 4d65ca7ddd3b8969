"""Only dialects and adapters contain names of frameworks."""

from __future__ import annotations

import re

from tests.house.project_files import project_files, text_of

EMITTERS = re.compile(
    r"\b(?:claude.?code|codex|opencode|gemini.?cli|copilot|strands|mastra|logfire|openinference"
    r"|openllmetry|traceloop|vercel|crewai|autogen|smolagents|google.adk)",
    re.IGNORECASE,
)
OTHERS = (
    "tracer/otel/dialects/",
    "tracer/adapters/",
    "tracer/cli/emitters.py",
    "tracer/cli/setup.py",
)
"""The dialects, adapters, each of one framework, and the settings that `tracer doctor` checks and
`tracer setup` writes."""


def test_only_dialects_and_adapters_contain_names_of_frameworks() -> None:
    named = [
        f"{path}:{number}: {line.strip()}"
        for path in project_files()
        if path.suffix == ".py"
        and path.parts[0] in ("tracer", "migrations")
        and not path.as_posix().startswith(OTHERS)
        for number, line in enumerate((text_of(path) or "").splitlines(), 1)
        if EMITTERS.search(line)
    ]

    assert named == []
