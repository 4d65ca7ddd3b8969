"""Protobuf definitions with the wire format of OTLP, for all that OTLP's own definitions cannot do.

They parse stored messages, read and write messages whose parts stay serialized, and parse requests
with strings that are not valid UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

_SMALL = bytes(range(0x20))

_FILES = (common_pb2, resource_pb2, trace_pb2, logs_pb2, trace_service_pb2, logs_service_pb2)


def most_fields(message: bytes) -> int:
    """Return an upper estimate of the number of fields in a message, including nested fields.

    The message is not parsed. The estimate is the number of bytes below 32: the length of a short
    field is such a byte, and so is the tag of a field that contains a message. Text contains few
    such bytes.
    """
    return len(message) - len(message.translate(None, _SMALL))


_REPEATED, _OPTIONAL = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_OPTIONAL


def _add_own_messages() -> Iterable[Any]:
    """Define the three messages below, and yield their classes."""
    file = FileDescriptorProto(name="tracer/stored.proto", package="tracer")
    file.dependency.extend([trace_pb2.DESCRIPTOR.name, logs_pb2.DESCRIPTOR.name])
    kinds = (trace_pb2.ResourceSpans, logs_pb2.ResourceLogs)
    resources = [
        ("resource_spans", _REPEATED, f".{kinds[0].DESCRIPTOR.full_name}"),
        ("resource_logs", _REPEATED, f".{kinds[1].DESCRIPTOR.full_name}"),
    ]
    messages: dict[str, list[tuple[str, FieldDescriptorProto.Label.ValueType, str]]] = {
        "StoredMessage": resources,
        "StoredParts": [(name, label, "") for name, label, _ in resources],
        "Group": [("head", _OPTIONAL, ""), ("items", _REPEATED, ""), ("schema_url", _OPTIONAL, "")],
    }
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field, label, kind) in enumerate(fields, 1):
            type_ = FieldDescriptorProto.TYPE_MESSAGE if kind else FieldDescriptorProto.TYPE_BYTES
            message.field.add(
                name=field, number=number, label=label, type=type_, type_name=kind or None
            )
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    for name in messages:
        yield message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tracer.{name}"))


StoredMessage: Any
"""A stored message (`tracer.otel.otlp.logs`): `TracesData` with `ResourceLogs` in field 2."""
StoredParts: Any
"""A stored message whose resources are not parsed, but bytes."""
Group: Any
"""A resource with its scopes, or a scope with its items. All parts are bytes."""
StoredMessage, StoredParts, Group = _add_own_messages()


def parse(kind: Any, content: bytes) -> tuple[Any, bytes]:
    """Return a parsed OTLP message, and its bytes.

    Each byte sequence in a string that is not valid UTF-8 is replaced by U+FFFD, also in the bytes.

    Raises:
        google.protobuf.message.DecodeError: The content is cut off, malformed, or nests too deeply.
    """
    try:
        return kind.FromString(content), content
    except DecodeError:
        message = _with_bytes(kind.DESCRIPTOR.full_name).FromString(content)
    _replace_invalid(message)
    content = message.SerializeToString()
    return kind.FromString(content), content


@cache
def _with_bytes(name: str) -> Any:
    """Return the class of a message of OTLP in which strings are bytes."""
    return message_factory.GetMessageClass(_pool_with_bytes().FindMessageTypeByName(name))


@cache
def _pool_with_bytes() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for module in _FILES:
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in _all_messages(file.message_type):
            for field in message.field:
                if field.type == FieldDescriptorProto.TYPE_STRING:
                    field.type = FieldDescriptorProto.TYPE_BYTES
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _all_messages(messages: Iterable[Any]) -> Iterable[Any]:
    for message in messages:
        yield message
        yield from _all_messages(message.nested_type)


def _replace_invalid(message: Any) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                _replace_invalid(part)
        elif _is_text(field.full_name):
            if field.is_repeated:
                value[:] = map(_valid, value)
            else:
                setattr(message, field.name, _valid(value))


@cache
def _is_text(name: str) -> bool:
    """Return whether OTLP defines a field as a string."""
    field = descriptor_pool.Default().FindFieldByName(name)
    return bool(field.type == FieldDescriptor.TYPE_STRING)


def _valid(text: bytes) -> bytes:
    return text.decode(errors="replace").encode()
