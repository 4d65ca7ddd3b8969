"""The wire format of protocol buffers, as far as it takes to put spans into messages and out again.

A parser refuses a whole request for one bad string in it. To store the good spans of such a
request, its outer messages are taken apart here, and each span is parsed by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

_BYTES = 2
_MAX_SHIFT = 63


class Malformed(ValueError):
    """These bytes are no message."""


def bytes_field(number: int, data: bytes) -> bytes:
    """Return a field that holds text, bytes or a message, as it stands within a message."""
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def bytes_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each field that holds text, bytes or a message.

    Raises:
        Malformed: The bytes end in the middle of a field, or are no message at all.
    """
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        match tag & 7:
            case 0:
                _, at = _read_varint(message, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:
                length, at = _read_varint(message, at)
                if at + length > len(message):
                    raise Malformed("The body ends in the middle of a field.")
                yield tag >> 3, message[at : at + length]
                at += length
            case _:
                raise Malformed("The body is no protocol buffers message.")
    if at > len(message):
        raise Malformed("The body ends in the middle of a field.")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > _MAX_SHIFT:
            raise Malformed("The body ends in the middle of a field.")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
