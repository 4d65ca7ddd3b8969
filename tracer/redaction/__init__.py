"""Redaction: replace secrets in texts by masks before the texts are stored.

A `Redaction` finds secrets by the name of their key and by their form, in JSON and in other text,
and leaves everything else unchanged. Recorders and stores use the same one, so text that is
redacted twice stays the same. The table of the rules is `patterns.toml`.

Public modules:

- `events`: the redaction of events and payloads, in a thread of its own if they are large
"""

from tracer.redaction.redactor import Redaction, standard_redaction
from tracer.redaction.rules import LinearRegex, SecretKeys, configured_keys, configured_patterns
from tracer.redaction.values import ANY_VALUE

__all__ = [
    "ANY_VALUE",
    "LinearRegex",
    "Redaction",
    "SecretKeys",
    "configured_keys",
    "configured_patterns",
    "standard_redaction",
]
