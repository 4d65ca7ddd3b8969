"""Schemas of API keys and of callers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.alias_generators import to_camel

from tracer.records.access import Caller, NewKey, Scope


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
