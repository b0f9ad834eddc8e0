"""A server that the system pauses in the middle of an answer, and resumes when another has taken over."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import apsw
import msgspec

from tests.crash.killed_server import ServerProcess
from tests.crash.promises import check_chain
from tests.crash.served import Heard, completion, exchange, request
from turnledger import Ledger
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import ScriptedUpstream

SHORT_LEASE = "tests.crash.short_lease"
PATIENCE = 60.0


def pause(server: ServerProcess, database: Path) -> None:
    """Stop it while it waits for the write lock at most: stopped with the lock, it would stop everyone."""
    connection = apsw.Connection(str(database))
    connection.set_busy_timeout(10_000)
    try:
        connection.execute("BEGIN IMMEDIATE")
        server.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)
    finally:
        connection.close()


async def port_of(server: ServerProcess) -> int:
    return int((await server.announced()).rpartition(":")[2])


async def test_paused_server_whose_lane_was_taken_over_commits_nothing_and_reports_an_error(
    tmp_path: Path,
) -> None:
    gate = Gate()
    scripts = ["Too", gate, " late"], ["Second"]
    async with asyncio.timeout(PATIENCE), ScriptedUpstream(*scripts, otherwise=["Third"]) as upstream:
        paused = ServerProcess(tmp_path, upstream.url, module=SHORT_LEASE)
        other = ServerProcess(tmp_path, upstream.url, module=SHORT_LEASE)
        try:
            port, other_port = await port_of(paused), await port_of(other)
            heard = Heard()
            asking = asyncio.create_task(exchange(port, completion("First", X_Conversation_Id="one"), heard))
            await heard.until(lambda heard: heard.text == "Too")
            pause(paused, tmp_path / "chats.db")
            answered = await exchange(other_port, completion("Second", X_Conversation_Id="one"))
            assert (answered.status, answered.text) == (200, "Second")

            paused.process.send_signal(signal.SIGCONT)
            gate.release()
            await asking
            assert heard.payloads[-1] != b"[DONE]"
            assert msgspec.json.decode(heard.payloads[-1])["error"]["code"] == "superseded"

            # It goes on as a living process, behind what the other has committed.
            assert (await exchange(port, request("/readyz", method="GET"))).status == 200
            third = completion("Third", X_Conversation_Id="one", X_Conversation_Messages="new")
            assert (await exchange(port, third)).text == "Third"
            assert [await each.end(signal.SIGTERM) for each in (paused, other)] == [0, 0]
        finally:
            for each in (paused, other):
                each.process.kill()
                each.process.wait()
    async with await Ledger.open(paused.store) as ledger:
        history = await (await ledger.conversation(conversation_key="one")).turns()
    check_chain(history)
    assert [(turn.input[0].text, turn.text) for turn in history] == [("Second", "Second"), ("Third", "Third")]
