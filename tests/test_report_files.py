"""Atomic writing: a file is complete or does not exist, and a failure is an error of one sentence."""

import errno
import os

import pytest

from fedlib.files import write_bytes, write_text


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_text_and_bytes_arrive_unchanged_in_a_new_folder(tmp_path):
    path = tmp_path / "new" / "deep" / "a.txt"
    assert write_text(path, "Größe\r\n± 1\n") == path
    assert path.read_bytes() == "Größe\r\n± 1\n".encode()
    write_bytes(str(path), b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_a_written_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    assert write_bytes(tmp_path / "a", b"").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, function):
    path = write_text(tmp_path / "a.json", "old")
    monkeypatch.setattr(os, function, full_disk)
    with pytest.raises(OSError, match=r"a\.json' could not be written: No space left on device\.$") as caught:
        write_text(path, "new")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_write_that_stops_half_way_leaves_the_old_file_and_nothing_else(tmp_path):
    resource = pytest.importorskip("resource", reason="limits on file sizes exist on POSIX systems only")
    path = write_bytes(tmp_path / "a.bin", b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="could not be written") as caught:
            write_bytes(path, bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_an_interrupt_while_writing_stays_an_interrupt_and_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "a", b"data")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"file/a\.txt' could not be written"):
        write_text(tmp_path / "file" / "a.txt", "text")
