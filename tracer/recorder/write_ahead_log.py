"""Detect damage in the write-ahead log (WAL) of an SQLite database.

SQLite reads a WAL up to the first frame with a wrong checksum, and silently ignores the rest.
If a crash tore the last transaction, this is correct: that transaction was never acknowledged. But
if a frame in the middle is damaged, SQLite also ignores acknowledged transactions. The format is
described in https://www.sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
PAGE_BYTES = 4096
"""The page size of a spool. Assumed if the header of the WAL is damaged."""

_BIG_ENDIAN = 0x377F0683
_LITTLE_ENDIAN = 0x377F0682

Checksum = tuple[int, int]


class _Header(NamedTuple):
    is_valid: bool
    byte_order: str
    page_bytes: int
    salts: bytes
    checksum: Checksum


def count_ignored_commits(path: Path) -> int:
    """Return how many transactions SQLite ignores although the WAL contains their commit frame.

    The result is 0 if the WAL is missing or undamaged. It is also 0 if only the last transaction is
    torn: SQLite writes the commit frame last, so no commit frame follows the first invalid frame.
    Frames with another salt are left from an earlier use of the file. They are not counted.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        return _count(file)


def _count(file: BinaryIO) -> int:
    start = file.read(HEADER_BYTES)
    if len(start) < HEADER_BYTES:
        return 0
    header = _read_header(start)
    is_prefix_valid, checksum, salts = header.is_valid, header.checksum, header.salts
    ignored = 0
    is_damaged_commit = False
    frame_bytes = FRAME_HEADER_BYTES + header.page_bytes
    is_first = True
    while len(frame := file.read(frame_bytes)) == frame_bytes:
        _, size_after_commit = struct.unpack(">II", frame[:8])
        if not header.is_valid and is_first:
            salts = frame[8:16]
        is_first = False
        if is_prefix_valid:
            content = frame[:8] + frame[FRAME_HEADER_BYTES:]
            checksum = _checksum(content, header.byte_order, checksum)
            is_prefix_valid = frame[8:24] == salts + struct.pack(">II", *checksum)
            is_damaged_commit = frame[8:16] == salts and size_after_commit > 0
        elif frame[8:16] == salts and size_after_commit:
            ignored += 1
    # An invalid commit frame at the end may be torn; before other frames, it was acknowledged.
    return ignored + is_damaged_commit if ignored else 0


def _read_header(start: bytes) -> _Header:
    magic, _, page_bytes, _ = struct.unpack(">IIII", start[:16])
    byte_order = ">" if magic == _BIG_ENDIAN else "<"
    checksum = _checksum(start[:24], byte_order, (0, 0))
    is_valid = magic in (_BIG_ENDIAN, _LITTLE_ENDIAN) and start[24:] == struct.pack(
        ">II", *checksum
    )
    return _Header(
        is_valid, byte_order, page_bytes if is_valid else PAGE_BYTES, start[16:24], checksum
    )


def _checksum(content: bytes, byte_order: str, before: Checksum) -> Checksum:
    first, second = before
    for one, other in struct.iter_unpack(f"{byte_order}II", content):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
