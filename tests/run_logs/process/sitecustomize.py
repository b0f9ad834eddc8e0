"""Python runs this when a process begins whose PYTHONPATH has this folder: every one that the tests start.

What it writes to its standard error, the server's log above all, goes to the folder of the run as well.
"""

import errno
import os
import sys
import time

FOLDER = os.environ.get("TURNLEDGER_RUN_LOGS")


class CopiedStream:
    """A stream whose text is also added to a file."""

    def __init__(self, stream, path):
        self._stream = stream
        self._path = path

    def write(self, text):
        from private_texts import append

        try:
            append(self._path, text)
        except OSError as problem:
            if problem.errno != errno.EMFILE:  # a test lets a server run out of files
                raise
        return self._stream.write(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


if FOLDER and os.path.isdir(FOLDER):
    from private_texts import Notes, listen

    name = os.path.join(FOLDER, f"{os.getpid()}-{time.time_ns()}")
    if sys.stderr is not None:
        sys.stderr = CopiedStream(sys.stderr, f"{name}.log")
    listen(Notes(f"{name}.said", at_once=True))
