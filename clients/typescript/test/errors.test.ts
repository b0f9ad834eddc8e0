import assert from "node:assert/strict";
import { test } from "node:test";

import { errors, TurnledgerError } from "../src/index.js";
import { errorOf } from "../src/error-of.js";
import { CHAT, error, json, ScriptedServer } from "./scripted-server.js";

async function errorIn(script: ReturnType<typeof error>): Promise<any> {
  const server = new ScriptedServer(script);
  try {
    await server
      .client({ retries: { times: 0 } })
      .chats.open(CHAT)
      .info();
  } catch (problem) {
    return problem;
  }
}

test("an error has the class of its code, and the fields of the response", async () => {
  const problem = await errorIn(error(410, "conversation_deleted"));
  assert(problem instanceof errors.ConversationDeleted && problem instanceof errors.ConversationUnavailable);
  const { code, status, requestId, message, name, isRetryable, details } = problem;
  assert.deepEqual(
    [code, status, requestId, message, name, isRetryable, details.error?.type],
    [
      "conversation_deleted",
      410,
      "req_1",
      "It is conversation_deleted.",
      "ConversationDeleted",
      false,
      "invalid_request_error",
    ],
  );
});

test("an unknown code has the class of its status", async () => {
  const kinds = [
    [401, errors.NotAdmitted],
    [403, errors.NotAdmitted],
    [429, errors.TooManyRequests],
    [503, errors.ServerUnavailable],
    [502, errors.ServerUnavailable],
    [500, errors.RequestFailed],
    [418, errors.RequestFailed],
  ] as const;
  for (const [status, kind] of kinds) {
    const problem = await errorIn(error(status, "a_new_word"));
    assert.equal(problem.constructor, kind);
    assert.equal(problem.code, "a_new_word");
  }
});

test("the response of a proxy becomes an error by its status", async () => {
  const problem = await errorIn({ status: 404, pieces: ["<h1>Not here</h1>"] });
  assert.deepEqual([problem.code, problem.name], ["status_404", "RequestFailed"]);
  assert.equal((await errorIn({ status: 502, pieces: ["<h1>Bad gateway</h1>"] })).name, "ServerUnavailable");
  assert.equal((await errorIn(json({ error: { message: "m", code: null } }, 403))).code, "status_403");
});

test("codes that are names of object members have no class of their own", () => {
  for (const code of ["constructor", "__proto__", "to_string", "has_own_property"]) {
    assert.equal(errorOf(code, "").constructor, errors.RequestFailed);
  }
  assert(errorOf("queue_full", "") instanceof TurnledgerError);
});

test("a revision conflict carries the current chat", async () => {
  const body = { error: { message: "m", type: "t", param: null, code: "revision_conflict" }, chat: { title: "Hers", turn_count: 1 } };
  const problem = await errorIn(json(body, 412));
  assert(problem instanceof errors.RevisionConflict);
  assert.deepEqual(problem.details.chat, { title: "Hers", turnCount: 1 });
});
