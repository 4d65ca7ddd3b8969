"""Canaries: invented secrets that must be found nowhere after they were recorded."""

from __future__ import annotations

from typing import NamedTuple


class Secret(NamedTuple):
    """A text that contains a secret, and the redaction rule that finds it."""

    rule: str
    text: str
    hidden: str
    """The part of the text that must not be found."""


def _whole(rule: str, *parts: str) -> Secret:
    # In parts, so that secret scanners do not report this file.
    return Secret(rule, "".join(parts), "".join(parts))


_JWT = ("eyJ", "hbGciOiJIUzI1NiJ9", ".", "eyJzdWIiOiJjYW5hcnkifQ", ".", "c2lnbmF0dXJl")
_TAIL = "canary0123456789" * 4
_PEM = ("-----BEGIN ", "PRIVATE KEY-----\\nMIIcanary+/=\\n-----END ", "PRIVATE KEY-----")

SECRETS = (
    _whole("api_key", "sk-", "canary0123456789", "abcdef0123456789"),
    _whole("stripe_key", "sk_", "live_canary0123456789abcdef01"),
    _whole("github_token", "ghp_", "canary0123456789", "abcdefghijklmnopqrst"),
    _whole("github_token", "github_pat_", _TAIL[:22], "_", _TAIL[:59]),
    _whole("gitlab_token", "glpat-", "canary0123456789abcd"),
    _whole("aws_key", "AKIA", "CANARY0123456789"),
    _whole("slack_token", "xoxb-", "0123456789-canary0123456789"),
    _whole("google_key", "AIza", "canary0123456789abcdefghijklmnopqrs"),
    _whole("huggingface_token", "hf_", "canary0123456789", "abcdefghijklmnopqr"),
    _whole("groq_key", "gsk_", _TAIL[:52]),
    _whole("tracer_key", "tracer_", "canary0123456789abcdefghijklmnopqrstuvwxyzA"),
    _whole("jwt", *_JWT),
    _whole("private_key", *_PEM),
    _whole("card_number", "4111 ", "1111 ", "1111 ", "1111"),
    _whole("card_number", "3782", " 822463", " 10005"),
    _whole("card_number", "5105-", "1051-", "0510-", "5100"),
    Secret("bearer_token", "Bearer canary0123456789", "canary0123456789"),
    Secret("url_password", "amqp://user:canary-pw@host/x", "canary-pw"),
)
