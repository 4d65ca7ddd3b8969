"""Sign-in: a browser sends a key once, and gets a cookie that scripts in a page cannot read."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from api.dependencies import AnyCaller, AuthenticatorDep
from api.http.problems import documented
from api.keys.schemas import CallerSchema, SignInRequest
from api.middleware.authentication import COOKIE, SIGN_IN
from tracer.records.access import SIGNED_IN

router = APIRouter(prefix=SIGN_IN, tags=["access"])


@router.get("")
async def read_caller(caller: AnyCaller) -> CallerSchema:
    """Return who sends this request: the project and the scopes of the key."""
    return CallerSchema.of(caller)


@router.post("", responses=documented(HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN))
async def sign_in(
    shown: SignInRequest, request: Request, response: Response, authenticator: AuthenticatorDep
) -> CallerSchema:
    """Sign in with a key. The response sets a cookie that replaces the key."""
    secret, caller = await authenticator.sign_in(shown.key.get_secret_value())
    response.set_cookie(
        COOKIE,
        secret,
        max_age=int(SIGNED_IN.total_seconds()),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return CallerSchema.of(caller)


@router.delete("", status_code=HTTPStatus.NO_CONTENT)
async def sign_out(
    caller: AnyCaller, request: Request, response: Response, authenticator: AuthenticatorDep
) -> None:
    """Sign out. The server then rejects the cookie."""
    await authenticator.sign_out(request.cookies.get(COOKIE, ""))
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
