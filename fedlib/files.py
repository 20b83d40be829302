"""Atomic writes: a file is complete or does not exist. Temporary file, fsync, rename."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

UMASK = os.umask(0)  # the only way to read it
os.umask(UMASK)
MODE = 0o666 & ~UMASK  # of new files, as `open` makes them


def write_file(path: str | os.PathLike[str], write: Callable[[Path], object]) -> Path:
    """Let `write` write the file `path` and make missing folders; replaces an old file in one step. Returns the path.

    If writing fails (full disk, no permission), the old file is unchanged, no partial file remains, and an `OSError`
    with the same `errno` names the file and the reason.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        temporary.chmod(MODE)  # a library may have made it for this user alone
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
    """`write_file` for UTF-8 text; line ends stay as they are."""
    return write_bytes(path, text.encode("utf-8"))


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files of killed `write_file` calls from a folder, to which no other process may be writing."""
    for path in folder.glob(".*.tmp"):
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file if it exists. An error here is ignored: it must not hide the error being reported."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def _sync_folder(folder: Path) -> None:
    """Make a rename durable where folders can be opened (POSIX)."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
