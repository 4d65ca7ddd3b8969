"""Write docs/reference/emitters.md, what Tracer reads of each emitter: `make emitters`.

The figures are computed from the captures of the tests, so a change of the projection changes the
page, and `test_emitters.py` fails until the page is written again. The newest coding agents are
listed with the stored results of `make agents`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.otel import captured
from tests.otel.coding_agents import captured as coding_agents
from tests.otel.coding_agents.live import results
from tests.otel.projections import Projected
from tracer.otel.dialects import DIALECTS
from tracer.records import Kind

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "emitters.md"

_KILLED = "Spans that were open when the process was killed were never sent."

REASONS = {
    captured.LOST_CONTEXT: "The tool starts the sub-agent in an executor without the OpenTelemetry"
    " context, so each sub-agent is a trace, and a run, of its own, and nothing in it names its"
    " caller. Pass the context on: `executor.submit(contextvars.copy_context().run, function)`.",
    captured.NO_CONTENT: "Content is off: arguments, results and messages are not sent.",
    "agno-openinference-team-single": "A member's span names no calling tool call.",
    **dict.fromkeys(
        ("smolagents-nested", "smolagents-parallel"),
        "A call of a managed agent has no span. It is taken from the model's answer.",
    ),
    "openai-agents-traceloop-single": "A sub-agent's span is no child of the call that opened it.",
    "pydantic-ai-default-crash-single": f"{_KILLED} Logfire's pending spans show them.",
    **dict.fromkeys(
        ("claude-code-failing-content-on", "claude-code-2.1.332-failing-content-on"),
        "Claude Code refuses a call of an unknown tool before it decides on it, and sends neither a"
        " span nor an event about it.",
    ),
    "claude-code-killed-content-on": _KILLED,
    "claude-code-nested-content-off": "Content is off: arguments, results and messages are not"
    " sent.",
    "claude-code-terminated-content-on": "The span of the opening call was never sent.",
    "opencode-apifail-served": "The call was requested and never ran, so it has no span.",
    "opencode-crash": _KILLED,
    "opencode-subagent": "Without `opencode serve`, the program ends before its last spans are"
    " sent.",
}
"""Why something is missing or inferred, by capture."""

HEAD = """# Emitters

This page shows what Tracer reads from the spans and log records of programs that were really run. A
scripted model answered the programs, so it is known what they did. Each line is one recording.

<!-- `make emitters` writes this page from the captures in `tests/otel`. -->

- *Calls* and *sub-agents* are compared with what the program did. *Exact* links have evidence in
  the trace: ids or parents. *Inferred* links follow from texts or times, if only one candidate
  fits; they are marked in the viewer and in the API. All other sub-agents are not linked.
- An emitter that this page does not list is read by its [attributes](attributes.md).

If a run has *unread spans*, or its calls, links or tokens are not what the program did,
[report the emitter](../guides/unread-spans.md).
"""


@dataclass(frozen=True)
class Figures:
    """Counts of a recording."""

    calls: int
    calls_read: int
    agents: int
    exact: int
    """The sub-agents whose opening call follows from ids or parents."""
    inferred: int

    @property
    def is_complete(self) -> bool:
        """Whether all calls are read, and all sub-agents are linked by evidence."""
        return (self.calls_read, self.exact) == (self.calls, self.agents)


@dataclass(frozen=True)
class Capture:
    """A recording of an emitter: what its program did, and the runs that Tracer reads."""

    name: str
    truth: dict[str, Any]
    runs: list[Projected]

    @property
    def emitter(self) -> str:
        """The framework with the version of its first package."""
        version = next(iter(self.truth["versions"].values()))
        return f"{self.truth['framework']} {version.split()[-1]}"

    @property
    def date(self) -> str:
        """The day of the recording (UTC), or an empty text if no run has a start."""
        starts: list[datetime] = [
            start for run in self.runs if (start := run.whole_run["started_at"]) is not None
        ]
        return min(starts).date().isoformat() if starts else ""

    @property
    def figures(self) -> Figures:
        """The counts of the program's calls and sub-agents, and of those that Tracer shows."""
        done = self.truth["runs"]
        plans = [
            plan
            for run in self.runs
            for plan in run.records[Kind.PLAN].values()
            if plan.get("tool_call_id") is not None
        ]
        inferred = sum(bool(plan.get("inferred")) for plan in plans)
        return Figures(
            calls=sum(len(run["tool_calls"]) for run in done),
            calls_read=sum(len(run.records[Kind.TOOL_CALL]) for run in self.runs),
            agents=sum(len(run["sub_agents"]) for run in done),
            exact=len(plans) - inferred,
            inferred=inferred,
        )

    @property
    def line(self) -> str:
        """The line of the page's table."""
        figures = self.figures
        cells = (
            self.emitter,
            self.name,
            self.date,
            f"{figures.calls_read} of {figures.calls}",
            f"{figures.exact} of {figures.agents}",
            str(figures.inferred or ""),
            REASONS.get(self.name, ""),
        )
        return f"| {' | '.join(cells)} |"


def captures() -> Iterator[Capture]:
    """Yield all captures of the tests."""
    for name in captured.NAMES:
        truth = json.loads((captured.CAPTURES / name / "expected.json").read_text())
        yield Capture(name, truth, captured.projected(captured.spans_of(name)))
    for folder in sorted(coding_agents.CAPTURES.iterdir()):
        if (folder / "expected.json").exists():
            runs = coding_agents.projected(coding_agents.messages_of(folder.name))
            yield Capture(folder.name, coding_agents.truth_of(folder.name), runs)


RECORDED = """## Recorded programs

| emitter | recording | date | calls | sub-agents, exact | inferred | missing or inferred, because |
|---|---|---|---|---|---|---|"""

NEWEST = """
## Newest coding agents

`make agents` installs the newest versions of these programs, runs them with a scripted model, and
compares what Tracer shows with what the model knows
([how](../contributing/coding-agents.md)). *Exact* means: all rounds, calls, arguments, statuses,
agents, tokens, costs and titles are right, and no link is inferred or, while the program ran, was
false. *Placed while running* counts the calls that were seen below their agent before they ended.
Some programs send nothing while a call runs. Gemini CLI sends each model call and each batch of
calls of its main agent as a trace, and no id says which model call chose a call. Such a call is
expected as a run of its own within the row of its prompt, without a round.
"""

CONVENTIONS = """
## All conventions

Tracer reads these conventions. Those without a recording above are tested with spans that follow
the emitter's sources or documents.

| convention | instrumentation scopes |
|---|---|"""


def page() -> str:
    """Return the text of the page."""
    conventions = (
        f"| {each.title} | {', '.join(f'`{scope}`' for scope in each.scopes) or 'any'} |"
        for each in sorted(DIALECTS, key=lambda each: each.title.casefold())
    )
    recorded = sorted(each.line for each in captures())
    newest = results.lines(results.stored())
    return "\n".join([HEAD, RECORDED, *recorded, NEWEST, *newest, CONVENTIONS, *conventions, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
