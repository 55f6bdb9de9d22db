"""A program that ends when its parent dies, even by ``kill -9``: ``python tied.py PARENT PROGRAM WORD…``.

Linux sends the signal; on other systems the program runs on. A process of its own asks for it and then
becomes the program: Python code is not safe between ``fork`` and ``exec`` of a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h; exec keeps it


def tie(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))
        if os.getppid() != parent:  # it died before it was asked
            sys.exit(1)


if __name__ == "__main__":
    tie(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
