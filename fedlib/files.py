"""Writing a file so that it is there whole or not at all: temporary file, fsync, rename."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def write_file(path: str | Path, write: Callable[[Path], object]) -> Path:
    """Let `write` make the file `path`, missing folders too; an old file is replaced in one step. Returns the path.

    When writing fails (full disk, no permission), the old file stays as it was, nothing half-written is left,
    and an `OSError` says in one sentence which file could not be written and why; it keeps the `errno`.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
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
    """Remove what `write_file` had begun in a folder when its process was killed; no other may be writing there."""
    for path in folder.glob(".*.tmp"):
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file if it is there; a failure here must not hide the one being reported."""
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
