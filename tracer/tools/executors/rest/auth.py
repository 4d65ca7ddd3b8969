"""How a REST tool shows who it is, and how that is kept out of what comes back."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

from anyio import to_thread

from tracer.context import Identity, token_of
from tracer.errors import ToolError
from tracer.tools.executors.rest.config import (
    CALLER_TOKEN,
    Auth,
    BasicAuth,
    BearerAuth,
    QueryAuth,
)
from tracer.tools.executors.secrets import read_secret

HIDDEN = "[hidden]"


@dataclass(frozen=True)
class Credential:
    """The headers and query parameters that show who a tool is, for one call."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    forms: tuple[str, ...] = field(default=(), repr=False)
    """The texts by which the secret could come back, the longest first."""

    def hide(self, value: Any) -> Any:
        """Return a JSON value, or a text, without the secret: some servers echo what they get.

        Raises:
            RecursionError: The value is nested too deeply.
        """
        if not self.forms:
            return value
        if isinstance(value, str):
            for form in self.forms:
                value = value.replace(form, HIDDEN)
        elif isinstance(value, list):
            return [self.hide(each) for each in value]
        elif isinstance(value, dict):
            return {self.hide(name): self.hide(each) for name, each in value.items()}
        return value


async def credential_of(auth: Auth | None, caller: Identity | None) -> Credential:
    """Read the secret that a tool needs, and return what to send.

    Args:
        auth: How the tool authenticates itself; None: it does not.
        caller: The call's caller; `caller:token` refers to its token.

    Raises:
        MissingIdentity: The secret is the caller's token, and there is no caller.
        ToolError: It is missing, or no header can hold it. The message names the reference.
    """
    if auth is None:
        return Credential()
    source = auth.secret
    if source == CALLER_TOKEN:
        secret = token_of(caller)
    else:
        # In a thread: a file may be on a disk that is away.
        reading = source if callable(source) else partial(read_secret, source)
        value = await to_thread.run_sync(reading, abandon_on_cancel=True)
        secret = value.get_secret_value()
    forms = {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret)[1:-1].replace("/", "\\/"),
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe=""),
        quote(secret),
    }
    if isinstance(auth, QueryAuth):
        return Credential(query={auth.name: secret}, forms=_longest_first(forms))
    if isinstance(auth, BasicAuth):
        pair = b64encode(f"{auth.username}:{secret}".encode()).decode()
        forms.add(pair)
        name, shown = "Authorization", f"Basic {pair}"
    elif isinstance(auth, BearerAuth):
        name, shown = "Authorization", f"Bearer {secret}"
    else:
        name, shown = auth.name, secret
    if not (shown.isascii() and shown.isprintable() and shown == shown.strip()):
        raise ToolError(
            f"The secret {auth.secret!r} holds characters that no header can: "
            "the tool cannot be used until it is corrected."
        )
    return Credential({name: shown}, forms=_longest_first(forms))


def _longest_first(forms: set[str]) -> tuple[str, ...]:
    return tuple(sorted(forms, key=len, reverse=True))
