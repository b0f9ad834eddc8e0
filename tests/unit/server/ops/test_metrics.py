"""Counts are told under names that dashboards can rely on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from turnledger.server.ops.metrics import FILE_BYTES, Metrics


def test_each_thing_that_happens_is_counted() -> None:
    metrics = Metrics()
    metrics.turn_ended("committed")
    metrics.turn_ended("committed")
    metrics.turn_ended("failed")
    metrics.waited(0.02)
    metrics.first_token(0.3)
    metrics.committed(0.004)
    metrics.stream_opened()
    metrics.stream_opened()
    metrics.stream_closed()
    metrics.answered(200)
    metrics.watch("queue_length", "Waiting.", lambda: 7)
    told = metrics.text().decode()
    for line in (
        'turnledger_turns_total{outcome="committed"} 2.0',
        'turnledger_turns_total{outcome="failed"} 1.0',
        "turnledger_lane_wait_seconds_count 1.0",
        'turnledger_lane_wait_seconds_bucket{le="0.05"} 1.0',
        'turnledger_lane_wait_seconds_bucket{le="0.01"} 0.0',
        "turnledger_first_token_seconds_sum 0.3",
        'turnledger_commit_seconds_bucket{le="0.005"} 1.0',
        "turnledger_open_streams 1.0",
        'turnledger_requests_total{status="200"} 1.0',
        "turnledger_queue_length 7.0",
    ):
        assert line in told.splitlines()


def test_two_servers_in_a_process_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.turn_ended("committed")
    assert b'outcome="committed"' not in second.text()


def test_every_name_is_ours_and_explained() -> None:
    told = Metrics().text().decode()
    names = re.findall(r"^# HELP (\S+) (.+)$", told, re.MULTILINE)
    assert names
    assert all(name.startswith("turnledger_") and meaning.endswith(".") for name, meaning in names)


def worker(folder: Path, part: int, code: str) -> str:
    """What a process prints that counts as a worker with this part; all of its metrics are shared."""
    script = (
        "from pathlib import Path; from turnledger.server.ops.metrics import Metrics\n"
        f"metrics = Metrics.shared(Path({str(folder)!r}), {part})\n{code}\n"
        "print(metrics.text().decode())"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environ, check=True
    )
    return done.stdout


def test_workers_count_together_and_what_the_dead_have_counted_stays(tmp_path: Path) -> None:
    counts = "metrics.answered(200); metrics.waited(0.02); metrics.stream_opened()"
    watches = "metrics.watch('queue_length', 'Waiting.', lambda: 7)"
    worker(tmp_path, 0, f"{counts}\n{watches}")
    both = worker(tmp_path, 1, f"{counts}\n{watches}").splitlines()
    for line in (
        'turnledger_requests_total{status="200"} 2.0',
        'turnledger_lane_wait_seconds_bucket{le="0.05"} 2.0',
        "turnledger_open_streams 2.0",
        "turnledger_queue_length 14.0",
    ):
        assert line in both
    Metrics.clear(tmp_path, 0)
    # Whoever has the part of a dead worker counts on where that one ended.
    after = worker(tmp_path, 0, "metrics.answered(200)").splitlines()
    assert 'turnledger_requests_total{status="200"} 3.0' in after
    assert "turnledger_open_streams 1.0" in after
    assert "turnledger_queue_length 7.0" in after
    assert len(list(tmp_path.iterdir())) == 6


def test_the_disk_has_given_all_room_before_it_is_written_to_as_memory(tmp_path: Path) -> None:
    # Of a disk that fills up later, the system would kill the worker that touches what it was not given.
    worker(tmp_path, 0, "metrics.answered(200)")
    files = list(tmp_path.iterdir())
    assert len(files) == 3
    assert all(file.stat().st_blocks * 512 >= FILE_BYTES for file in files)
