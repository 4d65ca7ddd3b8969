"""The security sections of the OpenAPI document, derived from the routes' dependencies."""

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
        "description": "A key from `tracer keys create`. Not needed until the first one exists.",
    },
    "signIn": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "The cookie of a browser that signed in with a key.",
    },
}

_REFUSALS = problems.documented(HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def document_security(document: dict[str, Any], routes: Iterable[BaseRoute]) -> None:
    """Add each operation's scope and its authentication errors to an OpenAPI document.

    Args:
        document: The document, which is changed.
        routes: The routes of the document.
    """
    document["components"]["securitySchemes"] = SCHEMES
    for route in routes:
        if not isinstance(route, APIRoute):
            continue
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
    """Yield the scopes that a dependency and all its sub-dependencies require."""
    if isinstance(dependant.call, Allowed) and dependant.call.scope is not None:
        yield dependant.call.scope
    for each in dependant.dependencies:
        yield from scopes_of(each)
