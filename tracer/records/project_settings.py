"""The settings of a project: what it stores, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from tracer.records.payloads import PayloadPolicy


@dataclass(frozen=True)
class ProjectSettings:
    """The settings of a project."""

    keep_days: int | None = None
    """Runs are deleted this many days after they ended. None: age is no reason for deletion."""
    keep_runs: int | None = None
    """The number of runs above which the oldest are deleted; None: no limit."""
    payloads: PayloadPolicy = PayloadPolicy.KEEP
    """How much of a payload is stored. A change affects only payloads that are recorded later."""


class SettingsChange(TypedDict, total=False):
    """A change of a project's settings. Settings that it does not contain stay unchanged."""

    keep_days: int | None
    keep_runs: int | None
    payloads: PayloadPolicy
