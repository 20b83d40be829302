"""Atomic writes (temporary file, fsync, rename): a file is complete or does not exist."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

UMASK = os.umask(0)  # the umask can be read only by setting it
os.umask(UMASK)
MODE = 0o666 & ~UMASK  # of new files, as with `open`


def write_file(path: str | os.PathLike[str], write: Callable[[Path], object]) -> Path:
    """Write a file atomically by `write(path)`, creating missing folders; after an error the old file is unchanged."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        temporary.chmod(MODE)  # a library may have restricted it to this user
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:
        _remove(temporary)
        if not isinstance(error, OSError):
            raise
        failure = OSError(f"{str(path)!r} could not be written: {error.strerror or error}.")
        failure.errno = error.errno
        raise failure from error
    return path


def write_bytes(path: str | Path, data: bytes) -> Path:
    """`write_file` for bytes."""
    return write_file(path, lambda temporary: temporary.write_bytes(data))


def write_text(path: str | Path, text: str) -> Path:
    """`write_file` for UTF-8 text, with line endings unchanged."""
    return write_bytes(path, text.encode("utf-8"))


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files of killed `write_file` calls from a folder to which no other process writes."""
    for path in folder.glob(".*.tmp"):
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file if possible: an error here must not hide the error being reported."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable where folders can be opened (POSIX)."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
