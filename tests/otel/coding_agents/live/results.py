"""The results of the last runs of `make agents`, which docs/reference/emitters.md shows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Result:
    """What Tracer showed of a scenario."""

    emitter: str
    version: str
    scenario: str
    date: str
    prompts: int
    """The number of prompts of a person."""
    rows: int
    """The number of rows in the list of runs."""
    calls: int
    agents: int
    """The number of sub-agents."""
    running_calls: int
    """The number of calls that were shown while they ran."""
    running_placed: int
    """Those that were shown below their agent while they ran."""
    differences: list[str]
    """What Tracer shows differently."""
    has_run: bool
    calls_apart: int = 0
    """The number of calls that no id links to a model call, and that are shown so."""

    @property
    def line(self) -> str:
        """The line of the table."""
        running = f"{self.running_placed} of {self.running_calls}" if self.running_calls else ""
        exact = "exact"
        if self.calls_apart:
            exact = f"exact, but no id names the round of {self.calls_apart} calls"
        cells = (
            f"{self.emitter} {self.version}",
            self.scenario,
            self.date,
            str(self.calls),
            str(self.agents),
            running,
            f"{self.rows} for {self.prompts}",
            "; ".join(self.differences) or exact,
        )
        return f"| {' | '.join(cells)} |"


def lines(results: Iterable[Result]) -> list[str]:
    """Return a table of results."""
    return [
        "| emitter | scenario | date | calls | sub-agents | placed while running"
        " | rows for prompts | result |",
        "|---|---|---|---|---|---|---|---|",
        *(each.line for each in results),
    ]


def stored() -> list[Result]:
    """Return the stored results, by emitter and scenario."""
    if not RESULTS.exists():
        return []
    return [Result(**each) for each in json.loads(RESULTS.read_text(encoding="utf-8"))]


def save(results: Iterable[Result]) -> None:
    """Store results in place of earlier ones of the same scenarios."""
    by_scenario = {(each.emitter, each.scenario): each for each in (*stored(), *results)}
    ordered = [asdict(by_scenario[key]) for key in sorted(by_scenario)]
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
