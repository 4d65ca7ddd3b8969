"""The settings of a project: what it stores, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tracer.redaction.payloads import PayloadPolicy


class KeptSpans(StrEnum):
    """Which spans a project keeps after a run has received no data for some time."""

    ALL = "all"
    AGENT = "agent"
    """The spans of agents, model calls and tool calls, and the spans above these spans."""


@dataclass(frozen=True)
class ProjectSettings:
    """The settings of a project."""

    keep_days: int | None = None
    """Runs are deleted this many days after they ended. None: age is no reason for deletion."""
    keep_runs: int | None = None
    """The number of runs above which the oldest are deleted; None: no limit."""
    payloads: PayloadPolicy = PayloadPolicy.KEEP
    """How much of a payload is stored. A change affects only payloads that are recorded later."""
    keep_spans: KeptSpans = KeptSpans.ALL
