"""Signing in: a browser shows a key once, and holds a cookie that no script can read since."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from api.dependencies import Known, WhoCalls
from api.http.problems import documented
from api.keys.schemas import CallerSchema, SignInRequest
from api.middleware.authentication import COOKIE, SIGN_IN
from tracer.storage.postgres.projects.authentication import SIGNED_IN

router = APIRouter(prefix=SIGN_IN, tags=["access"])


@router.get("")
async def read_caller(caller: Known) -> CallerSchema:
    """Read who you are to the server: the project, and what you may do there."""
    return CallerSchema.of(caller)


@router.post("", responses=documented(HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN))
async def sign_in(
    shown: SignInRequest, request: Request, response: Response, callers: WhoCalls
) -> CallerSchema:
    """Sign in with a key; the answer sets a cookie that stands for it."""
    secret, caller = await callers.sign_in(shown.key.get_secret_value())
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
async def sign_out(caller: Known, request: Request, response: Response, callers: WhoCalls) -> None:
    """Sign out: the cookie is worth nothing from then on."""
    await callers.sign_out(request.cookies.get(COOKIE, ""))
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
