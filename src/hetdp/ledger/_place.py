"""Where a ledger's file may lie: on a disk of this machine.

SQLite relies on file locks and on its shared-memory index, which network file systems do not keep across machines: two
of them could both believe to hold the lock, and both would spend the same budget.
"""

from __future__ import annotations

import re
from pathlib import Path

from ._errors import LedgerError

NETWORK = frozenset(
    {"9p", "acfs", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre",
     "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "vmhgfs",
     "webdav"}
)  # fmt: skip
LOCAL_FUSE = frozenset({"fuseblk", "fuse.ext2", "fuse.ntfs-3g", "fuse.bindfs", "fuse.fuse-overlayfs", "fuse.zfs"})
_MOUNTS = Path("/proc/self/mounts")


def check_place(path: Path) -> None:
    """Raise if the file lies on a network file system; where the system does not tell, it is trusted."""
    mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if _MOUNTS.exists() else ""
    kind = file_system(path.resolve(), mounts)
    if is_network(kind):
        raise LedgerError(
            f"{path} lies on a network file system ({kind}), where locks do not protect a ledger; "
            "put it on a disk of this machine, or use PostgreSQL"
        )


def is_network(kind: str) -> bool:
    """Say whether a kind of file system is shared between machines; of user-space ones only a few are known as local.

    >>> is_network("ext4"), is_network("nfs4"), is_network("fuse.sshfs"), is_network("fuseblk")
    (False, True, True, False)
    """
    return kind in NETWORK or (kind.startswith("fuse.") and kind not in LOCAL_FUSE)


def file_system(path: Path, mounts: str) -> str:
    r"""Return the kind of file system on which a path lies, from the text of /proc/mounts; "" if unknown.

    The longest mount point above the path decides, of equal ones the last.

    >>> file_system(Path("/data/my budgets/b.db"), "/dev/sda / ext4 rw 0 0\nsrv:/x /data/my\\040budgets nfs4 rw 0 0\n")
    'nfs4'
    """
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_unescaped(fields[1]))
        if (path == point or point in path.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
