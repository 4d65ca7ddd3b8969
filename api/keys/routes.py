"""Routes for API keys. A key allows a program to record, read or administer one project."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path

from api.dependencies import AuthenticatorDep, Keys
from api.http.problems import documented
from api.keys.schemas import KeyList, KeyRequest, KeySchema, NewKeySchema

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
