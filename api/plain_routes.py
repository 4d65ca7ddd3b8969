"""Routes that Starlette serves and FastAPI only documents, for the most frequent requests.

FastAPI's routing and dependencies take up to 1 ms of processor time for each request. This is a
quarter of the time that it takes to return a tree of 100 records.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Depends, Request, Response
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.routing import request_response

from api.dependencies import Allowed
from api.http.parameters import name_lineage, refuse_unknown_parameters
from api.http.problems import COMMON_PROBLEMS


class PlainRoute(APIRoute):
    """A route that calls its endpoint with the request and its parameters.

    The endpoint declares its parameters as FastAPI's endpoints do, and the OpenAPI document is made
    from them. It may not have dependencies. Add the route to the application itself: a router that
    is included would wrap it.
    """

    def __init__(
        self,
        method: str,
        path: str,
        endpoint: Callable[..., Awaitable[Response]],
        allowed: Allowed,
        responses: dict[int | str, dict[str, Any]],
        **documentation: Any,
    ) -> None:
        """Create a route; `documentation` are further arguments of `APIRoute`."""
        super().__init__(
            path,
            endpoint,
            methods=[method],
            dependencies=[Depends(allowed)],
            response_model=None,
            operation_id=endpoint.__name__,
            responses=COMMON_PROBLEMS | responses,
            **documentation,
        )
        declared = self.dependant

        async def answer(request: Request) -> Response:
            await name_lineage(request)
            await allowed(request)
            if request.scope["query_string"]:
                await refuse_unknown_parameters(request)
            values, errors = dict[str, Any](), list[Any]()
            for fields, received in (
                (declared.path_params, request.path_params),
                (declared.query_params, request.query_params),
                (declared.header_params, request.headers),
            ):
                valid, invalid = request_params_to_args(fields, received)
                values |= valid
                errors += invalid
            if errors:
                raise RequestValidationError(errors)
            return await endpoint(request, **values)

        self.app = request_response(answer)
