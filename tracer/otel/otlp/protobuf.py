"""Read and write fields of the protocol buffers wire format.

A protobuf parser rejects a whole request if one string in it is invalid. Tracer must still store
the valid spans. This module therefore splits the request into spans, so that each span is parsed
separately.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

_BYTES = 2
_MAX_SHIFT = 63
_READ_BYTES = 2**20
_SMALL = bytes(range(0x20))


class Malformed(ValueError):
    """The bytes are not a protocol buffers message."""


def bytes_field(number: int, data: bytes) -> bytes:
    """Return an encoded field that holds text, bytes or a message."""
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def bytes_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each field that holds text, bytes or a message.

    Raises:
        Malformed: The bytes end in the middle of a field, or are not a protobuf message.
    """
    return streamed_fields(io.BytesIO(message))


def most_fields(message: bytes) -> int:
    """Return an upper estimate of the number of fields in a message, including nested fields.

    The message is not parsed. The estimate is the number of bytes below 32: the length of a short
    field is such a byte, and so is the tag of a field that contains a message. Text contains few
    such bytes.
    """
    return len(message) - len(message.translate(None, _SMALL))


def streamed_fields(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each field, as `bytes_fields`, from a stream.

    Raises:
        Malformed: The bytes end in the middle of a field, or are not a protobuf message.
    """
    while True:
        start = stream.read(1)
        if not start:
            return
        tag = _read_varint(stream, start)
        match tag & 7:
            case 0:
                _read_varint(stream)
            case 1:
                _read(stream, 8)
            case 5:
                _read(stream, 4)
            case 2:
                yield tag >> 3, _read(stream, _read_varint(stream))
            case _:
                raise Malformed("The body is not a protocol buffers message.")


def _read(stream: BinaryIO, size: int) -> bytes:
    # Read in chunks: a malformed message may claim any size, which must not be allocated.
    parts: list[bytes] = []
    while size > 0:
        part = stream.read(min(size, _READ_BYTES))
        if not part:
            raise Malformed("The body ends in the middle of a field.")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _varint(value: int) -> bytes:
    if value < len(_SHORT_VARINTS):
        return _SHORT_VARINTS[value]
    return bytes((value & 0x7F | 0x80,)) + _varint(value >> 7)


_SHORT_VARINTS = tuple(bytes((value,)) for value in range(0x80))


def _read_varint(stream: BinaryIO, start: bytes = b"") -> int:
    value = shift = 0
    while True:
        byte = start or stream.read(1)
        start = b""
        if not byte or shift > _MAX_SHIFT:
            raise Malformed("The body ends in the middle of a field.")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
        shift += 7
