"""The audit log: one line per request with caller, action and outcome, and no message content."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.guarded.town import ALL, PAGE, SECRETS, Town, chat_body, unknown_token
from tests.unit.server.site import site_of
from turnledger.server.access.audit_log import LEFT_OUT, UNKNOWN_CALLERS, logger
from turnledger.testing.fake_clock import FakeClock

GONE = "conversation_deleted"


@asynccontextmanager
async def audited(path: Path) -> AsyncIterator[Town]:
    """A server with one user, that writes its audit log to this file."""
    clock = FakeClock()
    async with site_of(Town, clock=clock, page=PAGE, audit_log=str(path)) as place:
        place.clock = clock
        made, place.tokens["ann"] = await place.host.tokens.create(owner="ann", scopes=ALL)
        place.ids["ann"] = str(made.id)
        try:
            yield place
        finally:
            place.app.service.audit.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


async def test_audit_log_records_caller_action_and_outcome_but_no_content(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with audited(path) as place:
        reply = await place.fetch(
            "POST", "/v1/chat/completions", "ann", chat_body(SECRETS[0]), key=SECRETS[1]
        )
        chat = reply.conversation
        turn = reply.turn
        await place.fetch("GET", f"/api/chats/{chat}", "ann")
        await place.fetch("GET", f"/api/chats/{chat}/export", "ann")
        minted = await place.fetch("POST", "/api/tokens", "ann", {"owner": "ben", "scopes": ["chats:read"]})
        shared = await place.fetch("POST", "/api/shares", "ann", {"scope": "shop"})
        visit = {"code": shared.json["code"], "nonce": "made-up-by-the-page-of-1"}
        await place.fetch("POST", "/api/shares/exchange", None, visit)
        await place.fetch("DELETE", f"/api/tokens/{minted.json['id']}", "ann")
        await place.fetch("DELETE", f"/api/shares/{shared.json['id']}", "ann")
        await place.fetch("DELETE", f"/api/chats/{chat}", "ann")
        line = {"type": "chat", "schema_version": 1, "id": "x", "created_at": 1, "touched_at": 1}
        imported = await place.fetch("POST", "/api/import", "ann", line)
        await place.fetch("GET", f"/api/turns/{turn}/events", "ann")
        place.tokens["ann"] = minted.json["token"]
        await place.fetch("GET", "/api/chats", "ann")
        await place.fetch("GET", "/healthz", None)
    entries = lines(path)
    for each in entries:
        assert each.pop("timestamp").endswith("Z")
        assert each.pop("request_id").startswith("req_")
    ann = {"owner": "ann", "token": place.ids["ann"]}
    token, share = minted.json["id"], shared.json["id"]
    [exchange] = [each for each in entries if each["action"] == "POST /api/shares/exchange"]
    visitor = exchange.pop("minted")
    assert (
        exchange.pop("minted_for") == f"guest_{share.removeprefix('share_')}_{visitor.removeprefix('tok_')}"
    )
    [taken_in] = [each for each in entries if each["action"] == "POST /api/import"]
    assert taken_in.pop("imported") == [msgspec.json.decode(imported.body.splitlines()[-2])["chat"]]
    one, ended = {**ann, "target_chat": chat}, {"target_token": token, "revoked": [token]}
    assert entries == [
        {"action": "POST /v1/chat/completions", **one, "target_turn": turn, "status": 200},
        {"action": "GET /api/chats/{chat}", **one, "status": 200},
        {"action": "GET /api/chats/{chat}/export", **one},
        {"action": "GET /api/chats/{chat}/export", **one, "status": 200},
        {"action": "POST /api/tokens", **ann, "minted": token, "minted_for": "ben", "status": 201},
        {"action": "POST /api/shares", **ann, "target_share": share, "status": 201},
        {"action": "POST /api/shares/exchange", "target_share": share, "status": 200},
        {"action": "DELETE /api/tokens/{token}", **ann, **ended, "status": 200},
        {"action": "DELETE /api/shares/{share}", **ann, "target_share": share, "status": 200},
        {"action": "DELETE /api/chats/{chat}", **one, "status": 200},
        {"action": "POST /api/import", **ann, "status": 200},
        {"action": "GET /api/turns/{turn}/events", **ann, "target_turn": turn},
        {"action": "GET /api/turns/{turn}/events", **ann, "target_turn": turn, "status": 410, "code": GONE},
        {"action": "GET /api/chats", "status": 401, "code": "token_revoked"},
    ]
    everything = path.read_text()
    for secret in (*SECRETS[:2], place.tokens["ann"], shared.json["code"]):
        assert secret not in everything


async def test_audit_log_bounds_lines_of_unauthenticated_callers_and_counts_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with audited(path) as place:
        place.tokens["stranger"] = unknown_token()
        for _ in range(UNKNOWN_CALLERS):
            assert (await place.fetch("GET", "/api/chats", None)).status == 401
            assert (await place.fetch("GET", "/api/chats/" + "x" * 10_000, "stranger")).status == 401
        await place.fetch("GET", "/api/chats", "ann")
        place.clock.advance(60)
        await place.fetch("GET", "/api/search?q=x", None)
        for _ in range(UNKNOWN_CALLERS + 6):
            await place.fetch("GET", "/api/tokens", None)
    entries = lines(path)
    strangers, ann = entries[:UNKNOWN_CALLERS], entries[UNKNOWN_CALLERS]
    assert {each["status"] for each in strangers} == {401}
    assert ann["owner"] == "ann"
    count, searched, *others, last = entries[UNKNOWN_CALLERS + 1 :]
    assert (count["action"], count["left_out"]) == (LEFT_OUT, UNKNOWN_CALLERS)
    assert searched["action"] == "GET /api/search"
    assert [each["action"] for each in others] == ["GET /api/tokens"] * (UNKNOWN_CALLERS - 1)
    assert (last["action"], last["left_out"]) == (LEFT_OUT, 7)  # when the file is closed
    assert max(map(len, path.read_bytes().splitlines())) < 500


async def test_audit_log_file_is_private_to_its_owner_and_survives_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    before = os.umask(0)
    try:
        async with audited(path) as place:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            await place.fetch("GET", "/api/chats", "ann")
            path.rename(tmp_path / "audit.jsonl.1")
            await place.fetch("GET", "/api/search?q=x", "ann")
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert [each["action"] for each in lines(tmp_path / "audit.jsonl.1")] == ["GET /api/chats"]
    assert [each["action"] for each in lines(path)] == ["GET /api/search"]


async def test_audit_log_write_failure_does_not_fail_the_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    async with audited(folder / "audit.jsonl") as place:
        (folder / "audit.jsonl").unlink()
        folder.rmdir()
        for _ in range(2):
            assert (await place.fetch("GET", "/api/chats", "ann")).status == 200
    assert [each.message for each in caplog.records].count("audit_log_failed") == 1


async def test_audit_log_lines_go_only_to_the_audit_logger(tmp_path: Path) -> None:
    messages: list[str] = []

    class Hearing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler = Hearing()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        async with audited(tmp_path / "audit.jsonl") as place:
            await place.fetch("GET", "/api/chats", "ann")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert [msgspec.json.decode(each)["action"] for each in messages] == ["GET /api/chats"]
    assert not logger.propagate
