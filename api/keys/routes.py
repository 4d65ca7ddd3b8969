"""Keys, which allow recording, reading and administering the caller's project."""

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
    """Create a key for the project. The response contains its `secret` only this once."""
    return NewKeySchema.of_new(await keys.create(wanted.name, wanted.scopes))


@router.delete(
    "/{keyId}", status_code=HTTPStatus.NO_CONTENT, responses=documented(HTTPStatus.NOT_FOUND)
)
async def revoke_key(
    key_id: Annotated[UUID, Path(alias="keyId")], keys: Keys, authenticator: AuthenticatorDep
) -> None:
    """Revoke a key and its sign-ins. Other servers reject it within two seconds."""
    await keys.revoke(key_id)
    authenticator.forget()
