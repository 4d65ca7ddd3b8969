"""Keys and callers, as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.alias_generators import to_camel

from tracer.records.access import Caller, NewKey, Scope


class ClosedSchema(BaseModel):
    """What the API shows and takes with exactly these fields."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        from_attributes=True,
        use_attribute_docstrings=True,
        extra="forbid",
    )


class CallerSchema(ClosedSchema):
    """Who asks, as the server knows them."""

    project: str
    """The project's name."""
    scopes: list[Scope]
    """What they may do."""
    key_id: UUID | None
    """The key that they showed; null where none is needed."""
    key_name: str | None

    @classmethod
    def of(cls, caller: Caller) -> Self:
        """Return what is shown of a caller."""
        return cls(
            project=caller.project,
            scopes=sorted(caller.scopes),
            key_id=caller.key_id,
            key_name=caller.key_name,
        )


class SignInRequest(ClosedSchema):
    """What somebody shows to sign in."""

    key: Annotated[SecretStr, Field(min_length=1, max_length=200)]
    """A key with the scope `read` or `admin`."""


class KeyRequest(ClosedSchema):
    """A key that is wished for."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """What it is for."""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    """What it allows."""


class KeySchema(ClosedSchema):
    """A key, without what programs show."""

    key_id: UUID
    project: str
    """The name of the project that it opens."""
    name: str
    scopes: list[Scope]
    created_at: datetime
    last_used_at: datetime | None
    """When it was used last, to the minute."""
    revoked_at: datetime | None


class NewKeySchema(KeySchema):
    """A key that was just made."""

    secret: str
    """What programs show. It is told this once, and kept nowhere."""

    @classmethod
    def of_new(cls, new: NewKey) -> Self:
        """Return the schema of a new key, which is shown once."""
        return cls(**KeySchema.model_validate(new.key).model_dump(), secret=new.secret)


class KeyList(ClosedSchema):
    """The keys of the project."""

    items: list[KeySchema]
