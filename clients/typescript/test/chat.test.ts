/** The request of each method, and what it makes of the response. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { errors, type Chat } from "../src/index.js";
import {
  all,
  BRANCH,
  CHAT,
  CHAT_INFO,
  error,
  events,
  finished,
  json,
  ScriptedServer,
  committed,
  STARTED,
  TURN,
  type ReceivedRequest,
  type Scripted,
} from "./scripted-server.js";
import { chatOf } from "./scripted-chat.js";

async function requestOf(answer: Scripted, call: (chat: Chat) => Promise<unknown>): Promise<[ReceivedRequest, any]> {
  const server = new ScriptedServer(answer);
  const result = await call(chatOf(server));
  server.done();
  return [server.only, result];
}

const LISTED = json(CHAT_INFO);

test("ids are checked before anything is sent", () => {
  const { chats } = new ScriptedServer().client();
  for (const id of ["", "conv_", "conv_123", CHAT.toUpperCase(), TURN, `${CHAT}\n`]) {
    assert.throws(() => chats.open(id), errors.InvalidId);
  }
  assert.throws(() => chats.open(CHAT).edit("turn_x", "Hi"), errors.InvalidId);
  assert.throws(() => chats.open({ conversationKey: "" }), errors.InvalidInput);
  assert.throws(
    () => chats.open("tlt_secret"),
    (problem) => !problem.message.includes("secret"),
  );
});

test("a chat opened by its key learns its id, and still sends the key", async () => {
  const turn = [STARTED, finished()];
  const server = new ScriptedServer(events(turn), committed("a"), events(turn), committed("b"), LISTED);
  const chat = server.client().chats.open({ conversationKey: "k", scope: "s" });
  assert.deepEqual([chat.id, chat.conversationKey, chat.scope], [null, "k", "s"]);
  await chat.send("One");
  assert.equal(chat.id, CHAT);
  await chat.send("Two");
  await chat.rename("T");
  assert.deepEqual(server.requests[2]?.body, {
    model: "demo",
    conversation_key: "k",
    scope: "s",
    input: "Two",
    stream: true,
  });
  assert.equal(server.requests[4]?.path, `/api/chats/${CHAT}`);
});

test("the id of a chat opened by its key is looked up when a request needs it", async () => {
  const server = new ScriptedServer(json({ data: [CHAT_INFO], next: null, as_of: "p" }), LISTED);
  await server.client().chats.open({ conversationKey: "a b" }).pin();
  assert.deepEqual(
    server.requests.map((each) => each.path),
    ["/api/chats?conversation_key=a+b", `/api/chats/${CHAT}`],
  );
  const none = new ScriptedServer(
    json({ data: [], next: null, as_of: "p" }),
    json({ data: [], next: null, as_of: "p" }),
  );
  const chat = none.client().chats.open({ conversationKey: "a" });
  await assert.rejects(chat.info(), errors.ConversationNotFound);
  assert.equal(await chat.stop(), null);
});

test("an idempotency key is percent-encoded in its header", async () => {
  const answer = events([STARTED, finished()]);
  const [request] = await requestOf(answer, (chat) => all(chat.send("Hi", { stream: true, idempotencyKey: "Ä 1" })));
  assert.equal(request.headers["idempotency-key"], "%C3%84%201");
});

test("removing a title sends null", async () => {
  const [request] = await requestOf(LISTED, (chat) => chat.rename(null));
  assert.deepEqual([request.method, request.body, request.headers["if-match"]], ["PATCH", { title: null }, undefined]);
});

test("without a model the server's only one is used, and several are an error that names them", async () => {
  const server = new ScriptedServer(json({ data: [{ id: "one" }] }), events([STARTED, finished()]), committed("a"));
  await chatOf(server, { model: undefined }).send("Hi");
  assert.equal(server.requests[1]?.body.model, "one");
  const several = new ScriptedServer(json({ data: [{ id: "one" }, { id: "two" }] }));
  const chat = chatOf(several, { model: "" });
  await assert.rejects(
    chat.send("Hi"),
    (problem) => problem instanceof errors.InvalidInput && /one, two/.test(problem.message),
  );
});

test("each fork, switch and undo has an idempotency key of its own", async () => {
  for (const [call, path, body] of [
    [(chat: Chat) => chat.fork({ at: TURN, title: "F" }), "fork", { turn: TURN, title: "F" }],
    [(chat: Chat) => chat.fork(), "fork", {}],
    [(chat: Chat) => chat.switch(BRANCH), "switch", { branch: BRANCH }],
    [(chat: Chat) => chat.undo({ turn: TURN, forget: true }), "undo", { turn: TURN, forget: true }],
    [(chat: Chat) => chat.undo(), "undo", {}],
  ] as const) {
    const [request] = await requestOf(LISTED, call);
    assert.deepEqual([request.method, request.path, request.body], ["POST", `/api/chats/${CHAT}/${path}`, body]);
    assert.match(request.headers["idempotency-key"] ?? "", /^\d+(-\d+){3}$/);
  }
  const [request, fork] = await requestOf(LISTED, (chat) => chat.fork({ idempotencyKey: "mine" }));
  assert.deepEqual([request.headers["idempotency-key"], fork.id], ["mine", CHAT]);
});

test("turns are read newest first, page by page, up to the limit", async () => {
  const page = (numbers: number[], before: number | null): Scripted =>
    json({ ...CHAT_INFO, turns: numbers.map((number) => ({ number })), before, attempts: [] });
  const server = new ScriptedServer(page([3, 4], 3), page([1, 2], null));
  const chat = chatOf(server);
  assert.deepEqual(
    (await chat.turns().all()).map((turn) => turn.number),
    [4, 3, 2, 1],
  );
  assert.deepEqual(
    server.requests.map((each) => each.path.split("?")[1]),
    ["limit=50", "before=3&limit=50"],
  );
  const some = new ScriptedServer(page([3, 4], 3), page([2], 2));
  const three = await chatOf(some).turns({ limit: 3 }).all();
  assert.deepEqual(
    three.map((turn) => turn.number),
    [4, 3, 2],
  );
  some.done();
});

test("turns stay on the named branch, or on that of the first page", async () => {
  const page = (before: number | null, branch = BRANCH): Scripted =>
    json({ ...CHAT_INFO, branch, turns: [{ number: before }], before, attempts: [] });
  const queries = async (options: { branch?: string }, ...script: Scripted[]): Promise<string[]> => {
    const server = new ScriptedServer(...script);
    await chatOf(server).turns(options).all();
    server.done();
    return server.requests.map((each) => (each.path.split("?")[1] as string).replace("limit=50", "-"));
  };
  const other = BRANCH.replace("01a", "01b");
  const moved = await queries({}, page(3), page(2, other), page(null, other));
  assert.deepEqual(moved, ["-", `before=3&-&branch=${BRANCH}`, `before=2&-&branch=${BRANCH}`]);
  const named = await queries({ branch: other }, page(3), page(null));
  assert.deepEqual(named, [`-&branch=${other}`, `before=3&-&branch=${other}`]);
  const reader = await queries({}, page(3), error(404, "branch_not_found"), page(2), page(null));
  assert.deepEqual(reader, ["-", `before=3&-&branch=${BRANCH}`, "before=3&-", "before=2&-"]);
  await assert.rejects(queries({ branch: other }, error(404, "branch_not_found")), errors.BranchNotFound);
});

test("an export is read line by line, and one that is cut off raises an error", async () => {
  const headers = { "content-type": "text/markdown; charset=utf-8" };
  const [request, lines] = await requestOf({ headers, pieces: ["a\nb", "c\n", "d"] }, (chat) =>
    all(chat.export({ format: "markdown" })),
  );
  assert.equal(request.path, `/api/chats/${CHAT}/export?format=markdown`);
  assert.deepEqual(lines, ["a", "bc", "d"]);
  const server = new ScriptedServer(
    error(503, "shutting_down"),
    { headers, pieces: [], ending: "cut" },
    { headers, pieces: ["a\n", "b"], ending: "cut" },
  );
  const read: string[] = [];
  await assert.rejects(async () => {
    for await (const line of chatOf(server).export()) read.push(line);
  }, errors.ServerUnavailable);
  assert.deepEqual(read, ["a"]);
});

test("fields of responses have camel-case names", async () => {
  const turn = { id: TURN, number: 3, kind: "completed", created_at: 5, committed_at: 6 };
  const page = json({ ...CHAT_INFO, turns: [turn], before: 3, attempts: [{ id: TURN, ended_at: null }] });
  const [, read] = await requestOf(page, (chat) => chat.read());
  const { turns, attempts, chat } = read;
  assert.deepEqual([turns[0].committedAt, attempts[0].endedAt, chat.turnCount, chat.turns], [6, null, 1, undefined]);
  const [, branches] = await requestOf(json({ data: [{ is_current: true }], next: null }), (chat) => chat.branches().all());
  assert.deepEqual(branches, [{ isCurrent: true }]);
  const [, siblings] = await requestOf(json({ data: [{ turn, is_current: false }] }), (chat) => chat.siblings(TURN));
  assert.deepEqual([siblings[0].turn.committedAt, siblings[0].isCurrent], [6, false]);
  const hits = new ScriptedServer(json({ data: [{ chat: CHAT_INFO, snippet: "so", marks: [] }], next: null }));
  const [hit] = await hits.client().chats.search("so").all();
  assert.equal(hit?.chat.turnCount, 1);
  const answer = await chatOf(new ScriptedServer(events([STARTED, finished()]), committed("a"))).send("Hi");
  assert.deepEqual([answer.chat.turnCount, answer.turn.committedAt], [1, 2]);
});
