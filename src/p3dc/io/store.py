"""Files in a store: ``s3://``, ``gs://`` and ``hf://`` addresses, read and written through pyarrow's file systems.

An object of a store appears whole or not at all: it is uploaded in one or more pieces, and nobody sees it before the
last piece is confirmed. :class:`StorePath` has those methods of :class:`pathlib.Path` that the package needs, so that
most code takes either.
"""

import io
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, TypeAlias

from p3dc.errors import InputError
from p3dc.io.atomic import replacing

ANONYMOUS = "anonymous@"
"""What precedes the name of a public bucket of Google Cloud Storage, to read it without credentials."""

GOOGLE_PATIENCE = timedelta(seconds=30)
"""How long Google's client retries before it raises an error; its own default is 15 minutes."""

ADDRESS = re.compile(r"(s3|gs|hf):/{1,2}(?=[^/])")  # pathlib turns s3://bucket into s3:/bucket


class StoreError(InputError):
    """A store that cannot be used now: wrong address, no permission, no network. Nothing is wrong with the data."""


class Stat(NamedTuple):
    """Size and time of the last change, under the names of :class:`os.stat_result`."""

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True, slots=True, order=True)
class StorePath:
    """The address of an object or of a folder in a store.

    Examples
    --------
    >>> from p3dc.io.store import StorePath
    >>> part = StorePath("s3://bucket/features") / "part-000000.parquet"
    >>> str(part), part.name, str(part.parent)
    ('s3://bucket/features/part-000000.parquet', 'part-000000.parquet', 's3://bucket/features')
    """

    address: str
    listed: Stat | None = field(default=None, compare=False)  # what the listing of its folder said

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> "StorePath":
        return StorePath(f"{self.address}/{name}")

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> "StorePath":
        """The folder."""
        return StorePath(self.address.rpartition("/")[0])

    def absolute(self) -> "StorePath":
        """Return the same address."""
        return self

    def exists(self) -> bool:
        """Whether there is an object or a folder."""
        from pyarrow.fs import FileType

        return self.listed is not None or bool(self._info().type != FileType.NotFound)

    def is_file(self) -> bool:
        """Whether there is an object."""
        return self.listed is not None or bool(self._info().is_file)

    def is_dir(self) -> bool:
        """Whether objects lie below the address."""
        from pyarrow.fs import FileType

        kind = FileType.File if self.listed else self._info().type
        if kind == FileType.NotFound:
            next(self.entries(), None)  # raises where the bucket itself is missing
        return bool(kind == FileType.Directory)

    def stat(self) -> Stat:
        """Return what is known from a listing, without asking the store again."""
        if self.listed is None:
            raise FileNotFoundError(f"{self} was not listed")
        return self.listed

    def looked_up(self) -> "StorePath":
        """Return the same address with the size and time of its object, if there is one."""
        info = self._info()
        return StorePath(self.address, Stat(info.size or 0, info.mtime_ns or 0)) if info.is_file else self

    def entries(self) -> Iterator[tuple["StorePath", bool]]:
        """List what lies directly in a folder, and whether each is a folder; nothing if there is no such folder."""
        from pyarrow.fs import FileSelector, FileType

        # Without recursion, pyarrow lists only those folders of Google's store that have an object of their own.
        recursive = self.address.startswith("gs:")
        try:
            with _reporting(self):
                system, path = _opened(self.address)
                found = system.get_file_info(FileSelector(path, recursive=recursive))
        except FileNotFoundError as error:
            if GOOGLE_ERROR.search(str(error)):  # a folder that is missing is not one of Google's errors
                raise _no_bucket(self) from None
            return
        found.reverse()
        folders = set()
        while found:
            info = found.pop()  # frees what pyarrow keeps of it
            name, below, _ = (info.path[len(path) + 1 :] if recursive else info.base_name).partition("/")
            if not below and info.type != FileType.Directory:
                yield StorePath(f"{self.address}/{name}", Stat(info.size or 0, info.mtime_ns or 0)), False
            elif name and name not in folders:  # a//b would lead back to a
                folders.add(name)
                yield StorePath(f"{self.address}/{name}"), True

    def glob(self, pattern: str) -> Iterator["StorePath"]:
        """List the objects directly in a folder whose names match."""
        return (path for path, is_folder in self.entries() if not is_folder and fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str) -> Iterator["StorePath"]:
        """List the objects in a folder, and in all folders below it, whose names match."""
        for path, is_folder in self.entries():
            if is_folder:
                yield from path.rglob(pattern)
            elif fnmatchcase(path.name, pattern):
                yield path

    def open(self) -> Any:
        """Open an object for reading anywhere in it; ``read_at`` may be called from several threads."""
        with _reporting(self):
            system, path = _opened(self.address)
            return system.open_input_file(path)

    def read_bytes(self) -> bytes:
        """Read an object; one that arrives cut short is refused."""
        with self.open() as file:
            return read_exactly(self, file, 0, file.size())

    def write_bytes(self, content: bytes | memoryview) -> None:
        """Write an object, which appears when all of it is there."""
        if self.address.startswith("hf:"):
            raise InputError(f"{self} cannot be written: hf:// is only read. Write to a folder, s3:// or gs://.")
        try:
            with _reporting(self):
                if self.address.startswith("gs:"):
                    # Google's client completes what was sent of an abandoned upload, so an interrupt waits for its end.
                    with ThreadPoolExecutor(1) as pool:
                        pool.submit(_upload, self.address, content).result()
                else:
                    _upload(self.address, content)
        except FileNotFoundError:
            raise _no_bucket(self) from None

    def _info(self) -> Any:
        with _reporting(self):
            system, path = _opened(self.address)
            return system.get_file_info(path)


Location: TypeAlias = Path | StorePath
"""A path on this machine or an address in a store."""

Address: TypeAlias = str | os.PathLike[str] | StorePath
"""What spells a location."""


def location(place: Address) -> Location:
    """Return the address in a store that a text or a path spells, or else the path on this machine.

    Examples
    --------
    >>> from pathlib import Path
    >>> from p3dc.io.store import location
    >>> location("s3://bucket/photos/")
    StorePath(address='s3://bucket/photos', listed=None)
    >>> location(Path("s3://bucket/photos")) == location("s3://bucket/photos")
    True
    >>> location("photos")
    PosixPath('photos')
    """
    if isinstance(place, StorePath):
        return place
    text = str(place)
    found = ADDRESS.match(text)
    if found is None:
        if re.match(r"[a-z0-9+]+://", text):
            raise InputError(f"{text} is in no store that is known. Give an s3://, gs:// or hf:// address.")
        return Path(text)
    return StorePath(f"{found[1]}://{text[found.end() :].rstrip('/')}")


@contextmanager
def writing(place: Location) -> Iterator[IO[bytes]]:
    """Yield a file to write to; it appears at the place when the block has ended, whole or not at all."""
    if isinstance(place, Path):
        with replacing(place) as temporary, temporary.open("wb") as file:
            yield file
    else:
        buffer = io.BytesIO()
        yield buffer
        place.write_bytes(buffer.getbuffer())


def read_range(place: Location, file: Any, start: int, size: int) -> bytes:
    """Read a range of a file that pyarrow opened; shorter at the end of the file."""
    with _reporting(place):
        return bytes(file.read_at(size, start))


def read_exactly(place: Location, file: Any, start: int, size: int) -> bytes:
    """Read a range of a file that pyarrow opened; refuse one that is cut short."""
    content = read_range(place, file, start, size)
    if len(content) != size:
        raise StoreError(f"{place} is cut short: {len(content):,} of {size:,} bytes came. Fetch or write it again.")
    return content


@lru_cache(maxsize=64)
def _file_system(bucket: str) -> Any:
    from pyarrow import fs

    if bucket.startswith("hf:"):
        try:
            from huggingface_hub import HfFileSystem
        except ImportError:
            raise StoreError('hf:// needs huggingface_hub. Run pip install "p3dc-shot[hub]".') from None
        return fs.PyFileSystem(fs.FSSpecHandler(HfFileSystem()))
    if bucket.startswith("gs:"):
        return fs.GcsFileSystem(anonymous=bucket.startswith(f"gs://{ANONYMOUS}"), retry_time_limit=GOOGLE_PATIENCE)
    return fs.FileSystem.from_uri(bucket)[0]


def _opened(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    scheme, _, path = address.partition("://")
    system = _file_system(f"{scheme}://{path.partition('/')[0]}")
    return system, path.removeprefix(ANONYMOUS) if scheme == "gs" else path


def _upload(address: str, content: bytes | memoryview) -> None:
    system, path = _opened(address)
    # In a with block an interrupted write would be closed, and closing completes the upload.
    stream = system.open_output_stream(path)
    stream.write(content)
    stream.close()


AWS_ERROR = re.compile(r"AWS Error (\w+).*? during \w+ operation: (.*?)(?: \(Request ID.*)?$", re.DOTALL)
GOOGLE_ERROR = re.compile(
    r"google::cloud::Status\((\w+): (?:.*? last message of )?(.*?)(?: error_info=|\)$)", re.DOTALL
)
GOOGLE_ANSWER = re.compile(r'"message":\s*"((?:[^"\\]|\\.)*)"')
NO_BUCKET = re.compile(r"[Bb]ucket '[^']*' not found|bucket does not exist")
REMEDIES = {
    "NO_SUCH_BUCKET": "Check the name of the bucket.",
    "ACCESS_DENIED": "Check the credentials and what they allow.",
    "PERMISSION_DENIED": "Check the credentials and what they allow.",
    "INVALID_ACCESS_KEY_ID": "Check the credentials.",
    "SIGNATURE_DOES_NOT_MATCH": "Check the credentials.",
    "UNAUTHENTICATED": f"Check the credentials, or read a public bucket as gs://{ANONYMOUS}BUCKET.",
    "NETWORK_CONNECTION": "Check the network, then run the same again.",
    "UNAVAILABLE": "Check the network, then run the same again.",
    "DEADLINE_EXCEEDED": "Check the network, then run the same again.",
}


def _no_bucket(place: Location) -> StoreError:
    return StoreError(f"{place} cannot be used (there is no such bucket). {REMEDIES['NO_SUCH_BUCKET']}")


@contextmanager
def _reporting(place: Location) -> Iterator[None]:
    """Turn the errors of file systems into one sentence; a missing object stays a FileNotFoundError."""
    try:
        yield
    except (InputError, FileNotFoundError):
        raise
    except Exception as error:  # file systems raise errors of many libraries
        text = str(error) or type(error).__name__
        if "No such file or directory" in text:  # Google's file system says it in words only
            raise FileNotFoundError(text) from None
        code, why = _parsed(text)
        remedy = REMEDIES.get(code, "Check the address, the credentials and the network.")
        raise StoreError(f"{place} cannot be used ({' '.join(why.split()).rstrip('.:')}). {remedy}") from None


def _parsed(text: str) -> tuple[str, str]:
    """Return the code in an error of a file system, if it has one, and what it says."""
    if found := AWS_ERROR.search(text):
        return found[1], f"{found[1]}: {found[2]}"
    if found := GOOGLE_ERROR.search(text):
        answer = GOOGLE_ANSWER.search(found[2])
        why = (answer[1] if answer else found[2]).partition(". ")[0]
        code = "UNAUTHENTICATED" if "access token" in why else found[1]  # it says UNAVAILABLE without credentials
        return code, f"{code}: {why}"
    return "NO_SUCH_BUCKET" if NO_BUCKET.search(text) else "", text.partition("\n")[0]
