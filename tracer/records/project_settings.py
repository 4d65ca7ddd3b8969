"""What a project keeps of what it records, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tracer.redaction.payloads import PayloadPolicy


class KeptSpans(StrEnum):
    """Which spans and traces a project keeps once a run has been quiet."""

    ALL = "all"
    AGENT = "agent"
    """Those of agents, models and tools, and the spans above them."""


@dataclass(frozen=True)
class ProjectSettings:
    """What a project keeps."""

    keep_days: int | None = None
    """Runs are pruned that many days after they ended; None: by age never."""
    keep_runs: int | None = None
    """Of more runs than that, the oldest are pruned; None: however many there are."""
    payloads: PayloadPolicy = PayloadPolicy.KEEP
    """What is kept of payloads that are recorded from now on."""
    keep_spans: KeptSpans = KeptSpans.ALL
