"""Workers that race wait for the disk, as they would."""

from tests.on_disk import tmp_path  # noqa: F401
