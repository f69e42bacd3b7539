"""Small disks for nodes."""

import contextlib
import subprocess


@contextlib.contextmanager
def small_disk(path, size_bytes):
    """Mount a disk of this size at a directory; whether this process may mount."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
