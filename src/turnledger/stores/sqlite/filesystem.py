"""Which kind of filesystem a store is on."""

from __future__ import annotations

from pathlib import Path

NETWORKED = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "nfs", "nfs4", "smb3", "smbfs"}
)
"""Filesystems that several machines can share. The index of SQLite's log is memory of one machine: two
machines that use one store destroy it. One alone may use it, if its locks and syncs can be trusted."""
MOUNTS = Path("/proc/self/mounts")


def network_filesystem(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """The kind of network filesystem that a folder is on; None for a local one, or if it is unknown."""
    kind = filesystem_of(folder, mounts)
    return kind if kind in NETWORKED else None


def filesystem_of(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """The kind of the filesystem that a folder is on; None where that cannot be known."""
    try:
        lines = [line.split(" ") for line in mounts.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return None
    points = {Path(line[1].replace("\\040", " ")): line[2] for line in lines if len(line) > 2}
    return next((points[each] for each in (folder, *folder.parents) if each in points), None)
