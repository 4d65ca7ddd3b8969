"""Routes for API keys, and the sign-in of browsers."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Self
from uuid import UUID

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.alias_generators import to_camel

from api.dependencies import AnyCaller, AuthenticatorDep, Keys
from api.middleware.authentication import COOKIE, SIGN_IN
from api.problems import documented
from tracer.records.access import SIGNED_IN, Caller, NewKey, Scope

# --- Schemas of API keys and of callers.


class ClosedSchema(BaseModel):
    """A schema that rejects unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        from_attributes=True,
        use_attribute_docstrings=True,
        extra="forbid",
    )


class CallerSchema(ClosedSchema):
    """The authenticated author of a request: its project and its scopes."""

    project: str
    """The project's name."""
    scopes: list[Scope]
    """The caller's scopes."""
    key_id: UUID | None
    """The id of the caller's key; null if the server needs no key."""
    key_name: str | None

    @classmethod
    def of(cls, caller: Caller) -> Self:
        """Return the schema of a caller."""
        return cls(
            project=caller.project,
            scopes=sorted(caller.scopes),
            key_id=caller.key_id,
            key_name=caller.key_name,
        )


class SignInRequest(ClosedSchema):
    """A request to sign in with a key."""

    key: Annotated[SecretStr, Field(min_length=1, max_length=200)]
    """A key with the scope `read` or `admin`."""


class KeyRequest(ClosedSchema):
    """A request to create a key."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """The key's purpose."""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    """The key's scopes."""


class KeySchema(ClosedSchema):
    """A key without its secret."""

    key_id: UUID
    project: str
    """The name of the key's project."""
    name: str
    scopes: list[Scope]
    created_at: datetime
    last_used_at: datetime | None
    """When the key was last used, to the minute."""
    revoked_at: datetime | None


class NewKeySchema(KeySchema):
    """A new key with its secret."""

    secret: str
    """The secret that programs send. The server stores only a hash, so it never returns the secret
    again."""

    @classmethod
    def of_new(cls, new: NewKey) -> Self:
        """Return the schema of a new key."""
        return cls(**KeySchema.model_validate(new.key).model_dump(), secret=new.secret)


class KeyList(ClosedSchema):
    """The keys of the project."""

    items: list[KeySchema]


# --- Routes for API keys. A key allows a program to record, read or administer one project.

router = APIRouter(prefix="/api/keys", tags=["access"])


@router.get("")
async def list_keys(keys: Keys) -> KeyList:
    """List the project's keys, oldest first, including revoked ones."""
    return KeyList(items=[KeySchema.model_validate(key) for key in await keys.list_keys()])


@router.post("", status_code=HTTPStatus.CREATED)
async def create_key(wanted: KeyRequest, keys: Keys) -> NewKeySchema:
    """Create a key for the project. No other response ever contains the key's `secret`."""
    return NewKeySchema.of_new(await keys.create(wanted.name, wanted.scopes))


@router.delete(
    "/{keyId}", status_code=HTTPStatus.NO_CONTENT, responses=documented(HTTPStatus.NOT_FOUND)
)
async def revoke_key(
    key_id: Annotated[UUID, Path(alias="keyId")], keys: Keys, authenticator: AuthenticatorDep
) -> None:
    """Revoke a key, and end the browser sessions that were opened with it.

    Other servers reject the key within two seconds.
    """
    await keys.revoke(key_id)
    authenticator.forget()


# --- Sign-in: a browser sends a key once, and gets a cookie that scripts in a page cannot read.

sign_in_router = APIRouter(prefix=SIGN_IN, tags=["access"])


@sign_in_router.get("")
async def read_caller(caller: AnyCaller) -> CallerSchema:
    """Return who sends this request: the project and the scopes of the key."""
    return CallerSchema.of(caller)


@sign_in_router.post("", responses=documented(HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN))
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


@sign_in_router.delete("", status_code=HTTPStatus.NO_CONTENT)
async def sign_out(
    caller: AnyCaller, request: Request, response: Response, authenticator: AuthenticatorDep
) -> None:
    """Sign out. The server then rejects the cookie."""
    await authenticator.sign_out(request.cookies.get(COOKIE, ""))
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
