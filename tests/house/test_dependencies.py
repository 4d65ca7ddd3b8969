"""Dependencies of the API routes."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import isasyncgenfunction, iscoroutinefunction

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from api.app import ALL_ROUTES
from api.routes import health


def _callables(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for each in dependant.dependencies:
        yield from _callables(each)


def test_routes_and_their_dependencies_are_coroutines() -> None:
    """FastAPI gives each dependency, and each route, that is no coroutine to a thread."""
    routes = [*health.router.routes, *ALL_ROUTES]
    threaded = {
        (route.path, repr(made))
        for route in routes
        if isinstance(route, APIRoute)
        for made in _callables(route.dependant)
        for called in [made if hasattr(made, "__code__") else type(made).__call__]
        if not (iscoroutinefunction(called) or isasyncgenfunction(called))
    }
    assert threaded == set()
