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

test("an error is of the class of its code, with what is known of it", async () => {
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

test("a code without a class is what its status says", async () => {
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

test("what something in between says is told by its status", async () => {
  const problem = await errorIn({ status: 404, pieces: ["<h1>Not here</h1>"] });
  assert.deepEqual([problem.code, problem.name], ["status_404", "RequestFailed"]);
  assert.equal((await errorIn({ status: 502, pieces: ["<h1>Bad gateway</h1>"] })).name, "ServerUnavailable");
  assert.equal((await errorIn(json({ error: { message: "m", code: null } }, 403))).code, "status_403");
});

test("codes that are names of other things are no classes", () => {
  for (const code of ["constructor", "__proto__", "to_string", "has_own_property"]) {
    assert.equal(errorOf(code, "").constructor, errors.RequestFailed);
  }
  assert(errorOf("queue_full", "") instanceof TurnledgerError);
});

test("a revision conflict brings the chat as it is by now", async () => {
  const body = { error: { message: "m", type: "t", param: null, code: "revision_conflict" }, chat: { title: "Hers", turn_count: 1 } };
  const problem = await errorIn(json(body, 412));
  assert(problem instanceof errors.RevisionConflict);
  assert.deepEqual(problem.details.chat, { title: "Hers", turnCount: 1 });
});
