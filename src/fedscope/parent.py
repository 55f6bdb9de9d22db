"""The parent of a worker process, without which it ends; imports no torch, so that workers start quickly."""

import os
from multiprocessing import parent_process
from threading import Thread


def end_with_parent() -> None:
    Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
