"""Memory of a CPU process that is taken once and used again.

By default glibc gives a freed tensor back to the system and takes fresh pages for the next.  A training step frees and
takes gigabytes, and a third of its time went into the system's clearing of those pages.
"""

import ctypes
import platform

__all__ = ["keep_freed_memory"]

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of malloc.h


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, for its own next tensors; return whether the C library can be told so.

    It holds for the whole process and until its end, so it is for a process that trains.  Only glibc knows it.

    Source: mallopt(3).
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, -1))
