"""Write protobuf fields by hand, to make malformed and hostile messages."""

from __future__ import annotations


def bytes_field(number: int, data: bytes) -> bytes:
    """Return an encoded field that holds text, bytes or a message."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    return bytes((value & 0x7F | 0x80,)) + _varint(value >> 7)
