"""Python runs this at the start of every process with this folder in PYTHONPATH: all that tests start.

It copies standard error, and so the log of a server, to the folder of the run.
"""

import errno
import os
import sys
import time

FOLDER = os.environ.get("TURNLEDGER_RUN_LOGS")


class CopiedStream:
    """A stream that also appends to a file."""

    def __init__(self, stream, path):
        self._stream = stream
        self._path = path

    def write(self, text):
        from private_texts import append

        try:
            append(self._path, text)
        except OSError as problem:
            if problem.errno != errno.EMFILE:  # a test exhausts file descriptors
                raise
        return self._stream.write(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


if FOLDER and os.path.isdir(FOLDER):
    from private_texts import Notes, listen

    name = os.path.join(FOLDER, f"{os.getpid()}-{time.time_ns()}")
    if sys.stderr is not None:
        sys.stderr = CopiedStream(sys.stderr, f"{name}.log")
    listen(Notes(f"{name}.texts", at_once=True))
