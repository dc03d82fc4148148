"""Members of zip and tar archives, read one by one where they lie; nothing is unpacked to disk."""

import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import IO, Any

from p3dc.errors import InputError
from p3dc.io.atomic import damaged
from p3dc.io.store import Location, Stat, StorePath, read_exactly, read_range

MAX_BYTES = 2**28
"""Larger members are not read into memory."""

READ_AHEAD = 2**22
"""Bytes of a tar in a store that are read at once to find headers: the wait for a request costs about as much."""

LOCAL_HEADER = 30
"""Bytes of a zip member's own header before its name."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive, and where its bytes are."""

    archive: Location
    name: str
    start: int  # of its bytes in a tar, of its header in a zip
    packed: int  # bytes in the archive
    size: int  # bytes when unpacked
    crc: int | None = None  # None in a tar
    deflated: bool = False

    def __str__(self) -> str:
        return f"{self.archive}/{self.name}"

    def stat(self) -> Stat:
        """Return a size and a time that change when the archive does."""
        return Stat(self.size, self.archive.stat().st_mtime_ns)

    def exists(self) -> bool:
        """Whether the archive exists."""
        return self.archive.exists()

    def absolute(self) -> "Member":
        """Return the member of the archive's absolute path."""
        return Member(self.archive.absolute(), self.name, self.start, self.packed, self.size, self.crc, self.deflated)

    def read_bytes(self) -> bytes:
        """Read the file: one request in a store. No more is unpacked than the archive declares."""
        if self.size > MAX_BYTES:
            raise InputError(f"It has {self.size:,} bytes; more than {MAX_BYTES:,} are refused. Leave it out.")
        packed = self._packed()
        if not self.deflated:
            content = packed
        else:
            try:
                content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, self.size + 1)
            except zlib.error as error:
                raise InputError(f"It is damaged ({error}). Write the archive again.") from None
        if len(content) != self.size:
            raise InputError("It has another size than the archive says. Write the archive again.")
        if self.crc is not None and zlib.crc32(content) != self.crc:
            raise InputError("It has another checksum than the archive says. Write the archive again.")
        return content

    def _packed(self) -> bytes:
        found = self.archive.stat()
        file = _opened(self.archive, Stat(found.st_size, found.st_mtime_ns))
        if self.crc is None:
            return read_exactly(self.archive, file, self.start, self.packed)
        guess = LOCAL_HEADER + len(self.name.encode("utf-8", "surrogateescape")) + 64
        block = read_range(self.archive, file, self.start, guess + self.packed)
        if len(block) < LOCAL_HEADER or block[:4] != b"PK\3\4":
            raise InputError("Its header is damaged. Write the archive again.")
        skipped = LOCAL_HEADER + sum(struct.unpack("<HH", block[26:30]))
        if skipped > guess:
            return read_exactly(self.archive, file, self.start + skipped, self.packed)
        return block[skipped : skipped + self.packed]


def zip_members(path: Location) -> list[Member]:
    """List the files of a zip in the order of their names; refuse tricks with paths, sizes and passwords."""
    with _reading(path) as file, zipfile.ZipFile(file) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
    end, members = 0, []
    for info in sorted(infos, key=lambda info: info.header_offset):
        _check_name(path, info.filename)
        if info.flag_bits & 0x1:
            raise InputError(f"{path} has a password on {info.filename}. Write it without one.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{path} is compressed by a method that is not read. Write it with deflate or none.")
        if info.header_offset < end:
            raise InputError(f"{path} has files that overlap, as a zip bomb has. Do not use it.")
        end = info.header_offset + LOCAL_HEADER + info.compress_size
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        place = info.header_offset, info.compress_size, info.file_size
        members.append(Member(path, info.filename, *place, info.CRC, deflated))
    members.sort(key=lambda member: member.name)
    for one, other in pairwise(members):
        if one.name == other.name:
            raise InputError(f"{path} has {one.name} twice. Write it again.")
    return members


def tar_members(path: Location) -> Iterator[Member]:
    """List the files of a tar in its order, one at a time.

    On disk only headers are read. In a store the tar is read in blocks, and larger members are passed over.
    """
    seen: set[str] = set()
    with _reading(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
        while (info := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # otherwise tarfile keeps all of them
            if not info.isreg() or info.sparse is not None:
                continue
            _check_name(path, info.name)
            if info.name in seen:
                raise InputError(f"{path} has {info.name} twice. Write it again.")
            seen.add(info.name)
            yield Member(path, info.name, info.offset_data, info.size, info.size)


def _check_name(path: Location, name: str) -> None:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or "\\" in name or "\0" in name:
        raise InputError(f"{path} holds {name!a}, a name that leads out of the archive. Do not use it.")


@contextmanager
def _reading(path: Location) -> Iterator[IO[bytes]]:
    """Open an archive as a file with a buffer, and report what is wrong with it."""
    try:
        if isinstance(path, Path):
            with path.open("rb") as file:
                yield file
        else:
            with path.open() as file:
                yield io.BufferedReader(_Ranges(path, file), READ_AHEAD)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist. Give a folder, a CSV, a zip, a tar or a Parquet file.") from None
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise damaged(path, error) from None


class _Ranges(io.RawIOBase):
    """A file that pyarrow opened, as a raw file of Python."""

    def __init__(self, path: StorePath, file: Any) -> None:
        self.path, self.file, self.at, self.size = path, file, 0, file.size()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = max(0, offset + (0, self.at, self.size)[whence])
        return self.at

    def readinto(self, buffer: Any) -> int:
        size = max(0, min(len(buffer), int(self.size) - self.at))
        buffer[:size] = read_exactly(self.path, self.file, self.at, size) if size else b""
        self.at += size
        return size


@lru_cache(maxsize=16)
def _opened(path: Location, stamp: Stat) -> Any:
    """Keep archives open for reading at any place; one that has changed since is opened again."""
    if isinstance(path, Path):
        from pyarrow import OSFile

        return OSFile(str(path))
    return path.open()
