"""Redaction in a store: secrets are masked, and payloads shortened by the project's policy.

This comes before the merge. Each version of a record is masked by itself, so the order of versions
does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracer.errors import BadRequest
from tracer.records.events import Event
from tracer.records.masks import PayloadPolicy
from tracer.records.spans import TraceSpans
from tracer.redaction import Redaction, standard_redaction
from tracer.redaction.events import redacted_events
from tracer.text import storable


class WriteRedactor:
    """Redacts events and spans before a store merges them."""

    def __init__(self, redaction: Redaction | None = None) -> None:
        """Create a redactor.

        Args:
            redaction: The rules that detect secrets; None: the standard rules.
        """
        self._redaction = redaction or standard_redaction()

    def events(
        self, events: Sequence[Event], policy: PayloadPolicy = PayloadPolicy.KEEP
    ) -> list[Event]:
        """Mask the secrets of events, and shorten their payloads by the project's policy.

        Raises:
            TooManySecrets: The events contain more secrets than are masked in one write.
        """
        return list(redacted_events(events, self._redaction.of_write(), policy))

    def traces(
        self, traces: Sequence[TraceSpans], policy: PayloadPolicy = PayloadPolicy.KEEP
    ) -> list[TraceSpans]:
        """Mask the secrets of spans, and shorten their payloads by the project's policy.

        Raises:
            TooManySecrets: The spans contain more secrets than are masked in one write.
        """
        redaction = self._redaction.of_write()
        return [_redacted_trace(each, redaction, policy) for each in traces]

    def subject(self, subject: str) -> str:
        """Return a subject as it is stored with its runs.

        Raises:
            BadRequest: The stored form contains masks, so several subjects may share it.
        """
        stored = self._redaction.value(storable(subject))
        if stored != storable(subject):
            raise BadRequest(
                f"No run has this subject: it looks like a secret, so it is stored as {stored!r}. "
                "Other subjects may be stored as the same text. Pass this text as the subject to "
                "delete the runs of all these subjects."
            )
        return stored

    def conversation(self, key: str) -> str:
        """Return the key of a conversation (`tracer.tools.run.conversation_of`), masked.

        Only the session id in the key is masked. If the digest of the caller were masked too,
        different callers with secret session ids would share a conversation.
        """
        session_id, at, caller = key.rpartition("@")
        return f"{self._redaction.value(session_id)}@{caller}" if at else self._redaction.value(key)

    def state(self, state: str) -> str:
        """Return the JSON of a session state without secrets."""
        return self._redaction.text(state)


def _redacted_trace(trace: TraceSpans, redaction: Redaction, policy: PayloadPolicy) -> TraceSpans:
    from tracer.otel.otlp import redact_spans

    message = redact_spans(trace.message, redaction, policy)
    return trace if message is trace.message else replace(trace, message=message)
