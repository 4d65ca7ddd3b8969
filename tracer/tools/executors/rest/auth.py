"""Authentication of a REST tool, and removal of its secret from responses."""

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
from tracer.tools.executors.rest.config import CALLER_TOKEN, Auth, BasicAuth, QueryAuth
from tracer.tools.executors.secrets import read_secret

HIDDEN = "[hidden]"


@dataclass(frozen=True)
class Credential:
    """The headers and query parameters that authenticate a tool, for one call."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    forms: tuple[str, ...] = field(default=(), repr=False)
    """The encodings in which a response may contain the secret, the longest first."""

    def hide(self, value: Any) -> Any:
        """Return a JSON value or a text without the secret. Some servers echo what they receive.

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
    """Read the secret of a tool, and return the headers or parameters to send.

    Args:
        auth: How the tool authenticates; None: without authentication.
        caller: The call's caller, whose token `caller:token` refers to.

    Raises:
        MissingIdentity: The secret is the caller's token, and there is no caller.
        ToolError: The secret is missing, or contains characters that are invalid in a header. The
            message names the reference.
    """
    if auth is None:
        return Credential()
    source = auth.secret
    if source == CALLER_TOKEN:
        secret = token_of(caller)
    else:
        # In a thread, because the file may be on a disk that does not respond.
        read = source if callable(source) else partial(read_secret, source)
        value = await to_thread.run_sync(read, abandon_on_cancel=True)
        secret = value.get_secret_value()
    sent = secret
    if isinstance(auth, BasicAuth):
        sent = b64encode(f"{auth.username}:{secret}".encode()).decode()
    text = json.dumps(secret)[1:-1]
    forms = {secret, sent, text, text.replace("/", "\\/"), quote(secret, safe=""), quote(secret)}
    forms.add(json.dumps(secret, ensure_ascii=False)[1:-1])
    longest_first = tuple(sorted(forms, key=len, reverse=True))
    if isinstance(auth, QueryAuth):
        return Credential(query={auth.name: secret}, forms=longest_first)
    scheme = {"basic": "Basic ", "bearer": "Bearer ", "header": ""}[auth.type]
    name, header = getattr(auth, "name", "Authorization"), scheme + sent
    if not (header.isascii() and header.isprintable() and header == header.strip()):
        raise ToolError(
            f"The secret {auth.secret!r} contains characters that are invalid in a header. "
            "The tool cannot be used until the secret is corrected."
        )
    return Credential({name: header}, forms=longest_first)
