"""The base class of the tables: the type of a field determines its column."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefinedType
from sqlalchemy import ARRAY, BigInteger, DateTime, Enum, Text, false, true
from sqlmodel import SQLModel
from sqlmodel.main import FieldInfoMetadata

from tracer.records.record_classes import Int64, Width
from tracer.records.status import Status

_STATUS = Enum(Status, name="record_status", values_callable=lambda kind: [s.value for s in kind])
_TYPES: dict[Any, Any] = {
    str: Text,
    datetime: DateTime(timezone=True),
    list[str]: ARRAY(Text),
    Int64: BigInteger,
    Status: _STATUS,
}
_TYPES |= {type_ | None: column for type_, column in _TYPES.items()}
"""The column types that differ from those of SQLModel."""


class TableRow(SQLModel):
    """The base class of all tables."""

    model_config = {"use_attribute_docstrings": True}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for field in cls.model_fields.values():
            field.metadata = [_column(field), *field.metadata]


def _column(field: FieldInfo) -> FieldInfoMetadata:
    """Return a field's column. Settings that the field lacks are taken from its type."""
    stated = [each for each in field.metadata if isinstance(each, FieldInfoMetadata)]
    column = stated[0] if stated else FieldInfoMetadata()
    if isinstance(column.sa_type, PydanticUndefinedType):
        type_ = Int64 if Width.BITS_64 in field.metadata else field.annotation
        if type_ in _TYPES:
            column = replace(column, sa_type=_TYPES[type_])
    if field.annotation == list[str] and not field.is_required():
        column = replace(column, nullable=True)  # an empty list is stored as null
    if isinstance(field.default, bool):
        default = true() if field.default else false()
        column = replace(column, sa_column_kwargs={"server_default": default})
    return column
