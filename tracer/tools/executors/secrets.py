"""Secrets in configurations are references; the value is read when it is used."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, SecretStr

from tracer.errors import ToolError
from tracer.redaction.keys import SecretKeys

MAX_FILE_BYTES = 64 * 1024
"""The largest size of a secret's file. A reference to a larger one is a mistake."""

_SECRET_KEYS = SecretKeys(("app_key", "auth_key", "functions_key", "subscription_key"))
_CREDENTIALS = re.compile(r"(?:bearer|basic|token)\s+\S", re.IGNORECASE)


def is_literal_secret(name: str, value: object) -> bool:
    """Return whether a setting, such as a header, contains a secret itself instead of a reference.

    A secret is recognized by the setting's name, in any spelling (`X-Api-Key`, `apiKey`), or by a
    value such as `Bearer …`. A template such as `{key}` is not a secret.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        return False
    if _CREDENTIALS.match(str(value)):
        return True
    return _SECRET_KEYS.rule_of(name) is not None and "{" not in str(value)


def checked_reference(reference: str) -> str:
    """Return a reference unchanged.

    Raises:
        ValueError: The text is not a reference.
    """
    kind, _, place = reference.partition(":")
    if kind not in ("env", "file") or not place.strip():
        # The message must not quote the value, which may be the secret itself.
        raise ValueError(
            "a secret must be a reference: 'env:' and a variable's name, or 'file:' and a file's "
            "path"
        )
    return reference


SecretReference = Annotated[str, AfterValidator(checked_reference)]
"""A reference to a secret: `env:NAME` or `file:PATH`. It may be shown and logged."""


def read_secret(reference: str, environment: Mapping[str, str] = os.environ) -> SecretStr:
    """Return the secret that a reference names. Trailing line breaks of a file are removed.

    Args:
        reference: A `SecretReference`.
        environment: The variables that `env:` refers to.

    Raises:
        ToolError: The secret is missing, empty or cannot be read. The message names the reference.
    """
    kind, _, place = reference.partition(":")
    try:
        value = environment[place] if kind == "env" else _text_of(Path(place))
    except (KeyError, OSError, ValueError):
        value = ""
    if not value:
        raise ToolError(
            f"The secret {reference!r} is missing. Set it before you use the tool."
        ) from None
    return SecretStr(value)


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        return ""
    return content.decode().rstrip("\r\n")
