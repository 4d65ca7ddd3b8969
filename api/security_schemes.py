"""What the OpenAPI document says of keys: what each operation needs, from what it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from api.dependencies import Allowed
from api.http import problems
from api.middleware.authentication import COOKIE, SIGN_IN
from tracer.records.access import Scope

SCHEMES: dict[str, Any] = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key: `tracer keys create`. None is needed until the first is made.",
    },
    "signIn": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "What a browser gets that signed in with a key.",
    },
}

_REFUSALS = problems.documented(
    HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS
)


def tell_security(document: dict[str, Any], routes: Iterable[BaseRoute]) -> None:
    """Write into an OpenAPI document which scope each operation needs, and how it is refused.

    Args:
        document: The document, which is changed.
        routes: What it is of.
    """
    document["components"]["securitySchemes"] = SCHEMES
    for route in routes:
        assert isinstance(route, APIRoute)
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            if route.path == SIGN_IN and method == "POST":
                operation["security"] = []
                continue
            scopes = set(scopes_of(route.dependant))
            shown = [Scope.ADMIN.value] if Scope.ADMIN in scopes else sorted(map(str, scopes))
            operation["security"] = [{scheme: shown} for scheme in SCHEMES]
            for status, response in _REFUSALS.items():
                operation["responses"].setdefault(str(status), response)


def scopes_of(dependant: Dependant) -> Iterator[Scope]:
    """Yield the scopes that something needs, by what it depends on."""
    if isinstance(dependant.call, Allowed) and dependant.call.scope is not None:
        yield dependant.call.scope
    for each in dependant.dependencies:
        yield from scopes_of(each)
