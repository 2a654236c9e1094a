"""TFRecord files: the framing of records, with checksums; without TensorFlow."""

import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from albert_tf.errors import UserError

_FRAME_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


def frame(record: bytes) -> bytes:
    """Returns a record in TFRecord framing: length, masked CRC of the length, data, masked CRC of the data."""
    return b"".join((_frame_header(len(record)), record, _CHECKSUM.pack(_masked_crc(record))))


def read_records(path: Path) -> Iterator[bytes]:
    """Yields the records of a TFRecord file and checks their checksums; a damaged file raises UserError."""
    return (record for record, _ in read_records_with_ends(path))


def read_records_with_ends(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yields each record of a TFRecord file with the offset of the byte after it; as `read_records`."""
    end = 0
    with open(path, "rb") as stream:
        while (length := _read_frame_header(stream, path)) is not None:
            record, checksum = stream.read(length), stream.read(4)
            if len(record) < length or len(checksum) < 4:
                raise UserError(f"{path} is cut short in the record at byte {end}; make it again")
            if _CHECKSUM.unpack(checksum)[0] != _masked_crc(record):
                raise UserError(f"{path} is damaged: the checksum of the record at byte {end} is wrong; make it again")
            end = stream.tell()
            yield record, end


def count_records(path: Path) -> int:
    """Returns the number of records of a TFRecord file, reading only their headers; a damaged file raises UserError."""
    size = path.stat().st_size
    count = 0
    with open(path, "rb") as stream:
        while (length := _read_frame_header(stream, path)) is not None:
            end = stream.tell() + length + 4
            if end > size:
                raise UserError(f"{path} is cut short in its last record; make it again")
            stream.seek(end)
            count += 1
    return count


def _read_frame_header(stream: BinaryIO, path: Path) -> int | None:
    """Returns the length of the record that follows, or None at the end of the file."""
    header = stream.read(_FRAME_HEADER.size)
    if not header:
        return None
    if len(header) == _FRAME_HEADER.size:
        length, checksum = _FRAME_HEADER.unpack(header)
        if checksum == _masked_crc(header[:8]):
            return length
    place = stream.tell() - len(header)
    raise UserError(f"{path} is not a TFRecord file, or it is damaged at byte {place}")


def _masked_crc(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@functools.lru_cache
def _frame_header(length: int) -> bytes:
    encoded = struct.pack("<Q", length)
    return encoded + _CHECKSUM.pack(_masked_crc(encoded))
