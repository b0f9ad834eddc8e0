/** Chats that are not kept: their requests, their events, and what stays in memory. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { errors } from "../src/index.js";
import { UnkeptChat, type UnkeptEvent, type UnkeptMessage, type UnkeptOptions } from "../src/unkept.js";
import { all, error, json, REFUSED, ScriptedServer, type Ending, type Scripted } from "./scripted-server.js";

const UNKEPT = { "content-type": "text/event-stream", "x-conversation-state": "unkept" };
const sent = (chunk: object): string => `data: ${JSON.stringify(chunk)}\n\n`;
const delta = (content: object, reason: string | null = null): string =>
  sent({ choices: [{ index: 0, delta: content, finish_reason: reason }] });
const words = (...texts: string[]): string[] => texts.map((content) => delta({ content }));
const streamed = (pieces: readonly string[], ending: Ending = "end"): Scripted => ({ headers: UNKEPT, pieces, ending });
const STOP = [delta({}, "stop"), "data: [DONE]\n\n"];
const whole = (...texts: string[]): Scripted => streamed([...words(...texts), ...STOP]);

const chatAt = (server: ScriptedServer, options: UnkeptOptions = {}): UnkeptChat =>
  new UnkeptChat("https://server.test", { ...server.options, ...options });
const user = (content: string): UnkeptMessage => ({ role: "user", content });
const assistant = (content: string): UnkeptMessage => ({ role: "assistant", content });
const textOf = (events: readonly UnkeptEvent[]): string =>
  events.map((event) => (event.type === "text.delta" ? event.text : "")).join("");

test("each request sends the whole conversation, and asks the server to keep nothing", async () => {
  const server = new ScriptedServer(whole("Hel", "lo."), whole("Good."));
  const chat = chatAt(server, { scope: "a b", apiKey: "tlt_1" });
  const events = await all(chat.send("Hi", { instructions: "Be kind." }));
  assert.deepEqual(events, [
    { type: "text.delta", text: "Hel" },
    { type: "text.delta", text: "lo." },
    { type: "turn.finished", reason: "stop", usage: null },
  ]);
  assert.deepEqual(chat.messages, [user("Hi"), assistant("Hello.")]);
  await all(chat.send("How are you?", { model: "other", settings: { temperature: 0 } }));
  const [first, second] = server.requests;
  assert.deepEqual([first?.method, first?.path], ["POST", "/v1/chat/completions"]);
  const { authorization, "x-conversation-keep": keep, "x-conversation-scope": scope } = first?.headers ?? {};
  assert.deepEqual([authorization, keep, scope], ["Bearer tlt_1", "no", "a%20b"]);
  assert.equal(first?.headers["idempotency-key"], undefined);
  const system = { role: "system", content: "Be kind." };
  assert.deepEqual(first?.body, { model: "demo", messages: [system, user("Hi")], stream: true });
  const messages = [system, user("Hi"), assistant("Hello."), user("How are you?")];
  assert.deepEqual(second?.body, { temperature: 0, model: "other", messages, stream: true });
  assert.equal(chat.messages.length, 4);
  server.done();
});

test("instructions apply until others are given, and an empty text removes them", async () => {
  const server = new ScriptedServer(whole("1"), error(400, "model_refused"), whole("2"), whole("3"));
  const chat = chatAt(server);
  await all(chat.send("a", { instructions: "One." }));
  await assert.rejects(all(chat.send("b", { instructions: "Two." })));
  assert.equal(chat.instructions, "One.");
  await all(chat.send("c"));
  await all(chat.send("d", { instructions: "" }));
  const first = server.requests.map((each) => each.body.messages[0].content);
  assert.deepEqual(first, ["One.", "Two.", "One.", "a"]);
});

test("a failure leaves the messages unchanged, and is thrown with its class", async () => {
  const within = sent({ error: { message: "It broke.", type: "server_error", param: null, code: "model_unavailable" } });
  const server = new ScriptedServer(
    whole("Fine."),
    streamed([...words("Not "), within]),
    streamed(words("Cut "), "cut"),
    streamed(words("Short ")), // it ends without [DONE]
    streamed(words("Quiet "), "silence"),
    error(404, "model_not_found"),
  );
  const chat = chatAt(server);
  await all(chat.send("Hi"));
  const before = chat.messages;
  const failures = [errors.ModelUnavailable, errors.ServerUnavailable, errors.ServerUnavailable];
  for (const kind of [...failures, errors.ServerUnavailable, errors.RequestFailed]) {
    await assert.rejects(all(chat.send("More", { onStop: "keep" })), kind);
    assert.equal(chat.messages, before);
  }
  assert.deepEqual(server.pauses, []);
  server.done();
});

test("an empty answer is kept, and not sent to the model later", async () => {
  const server = new ScriptedServer(streamed(STOP), whole("Here."));
  const chat = chatAt(server);
  assert.deepEqual((await all(chat.send("Hi"))).map(({ type }) => type), ["turn.finished"]);
  assert.deepEqual(chat.messages.at(-1), { role: "assistant", content: "" });
  await all(chat.send("Well?"));
  const { messages } = server.requests[1]!.body as { messages: { content: string }[] };
  assert.deepEqual(messages.map(({ content }) => content), ["Hi", "Well?"]);
  assert.equal(chat.messages.length, 4);
  server.done();
});

test("a request is repeated until its answer begins", async () => {
  const within = sent({ error: { message: "m", type: "server_error", param: null, code: "shutting_down" } });
  const server = new ScriptedServer(REFUSED, error(503, "shutting_down"), streamed([within]), whole("Here."));
  const chat = chatAt(server);
  assert.equal(textOf(await all(chat.send("Hi"))), "Here.");
  assert.deepEqual(server.pauses, [100, 200, 400]);
  const bodies = server.requests.map((each) => JSON.stringify(each.body));
  assert.equal(new Set(bodies).size, 1);
  server.done();
});

test("a server that does not confirm that it keeps nothing is refused", async () => {
  const server = new ScriptedServer({ headers: { "content-type": "text/event-stream" }, pieces: words("Hi") });
  await assert.rejects(all(chatAt(server, { retries: { times: 0 } }).send("Hi")), { code: "request_failed" });
  server.done();
});

test("a stop leaves the messages unchanged, or keeps the text so far", async () => {
  const server = new ScriptedServer(...Array.from({ length: 4 }, () => streamed(words("So ", "far"), "silence")));
  const chat = chatAt(server);
  const read = async (onStop: "keep" | "discard" | undefined, signal?: AbortSignal): Promise<() => void> => {
    const stream = chat.send("Hi", { onStop, signal, instructions: "Be slow." });
    assert.equal((await stream.next()).value?.type, "text.delta");
    return () => stream.close();
  };
  (await read(undefined))();
  (await read("discard"))();
  assert.deepEqual([chat.messages, chat.instructions], [[], ""]);
  (await read("keep"))();
  assert.deepEqual([chat.messages, chat.instructions], [[user("Hi"), assistant("So ")], "Be slow."]);
  const controller = new AbortController();
  await read("keep", controller.signal);
  controller.abort();
  assert.equal(chat.messages.length, 4);
  await new Promise((resolve) => setTimeout(resolve));
  server.done();
});

test("a stop before the first text leaves no message, also of a request that was never sent", async () => {
  const server = new ScriptedServer(streamed([], "silence"), whole("Yes."));
  const chat = chatAt(server);
  const first = chat.send("Hi", { onStop: "keep" });
  const second = chat.send("Or", { signal: AbortSignal.abort(new Error("no")), onStop: "keep" });
  const third = chat.send("So?");
  await assert.rejects(all(second), /no/);
  await new Promise((resolve) => setTimeout(resolve));
  assert.equal(server.requests.length, 1);
  first.close();
  assert.equal(textOf(await all(third)), "Yes.");
  assert.deepEqual(chat.messages, [user("So?"), assistant("Yes.")]);
  server.done();
});

test("a second message waits for the first, and is sent with its answer", async () => {
  const server = new ScriptedServer(whole("One."), whole("Two."));
  const chat = chatAt(server);
  const [first, second] = [chat.send("a"), chat.send("b")];
  const events = await Promise.all([all(second), all(first)]);
  assert.deepEqual(events.map(textOf), ["Two.", "One."]);
  assert.deepEqual(server.requests[1]?.body.messages, [user("a"), assistant("One."), user("b")]);
});

test("forget removes the messages, and ends running and waiting requests", async () => {
  const server = new ScriptedServer(whole("One."), streamed(words("Two"), "silence"), whole("Three."));
  const chat = chatAt(server);
  await all(chat.send("a", { instructions: "Be brief." }));
  const stream = chat.send("b", { onStop: "keep" });
  await stream.next();
  const waiting = chat.send("c");
  chat.forget();
  assert.deepEqual([chat.messages, chat.instructions], [[], ""]);
  assert.deepEqual([(await stream.next()).done, (await waiting.next()).done], [true, true]);
  await all(chat.send("d"));
  assert.deepEqual(server.requests[2]?.body.messages, [user("d")]);
  server.done();
});

test("reasoning, calls and usage become events in their order", async () => {
  const call = (index: number, piece: object): string => delta({ tool_calls: [{ index, ...piece }] });
  const pieces = [
    delta({ role: "assistant", reasoning_content: "Hm. " }),
    delta({ reasoning: "So." }),
    delta({ refusal: "No." }),
    call(0, { id: "c0", function: { name: "look", arguments: '{"a"' } }),
    call(0, { function: { arguments: ":1}" } }),
    call(2, { id: "c2", function: { name: "stay", arguments: "" } }),
    delta({}, "tool_calls"),
    sent({ choices: [], usage: { total_tokens: 7 } }),
    ": a sign of life\n\ndata: [DONE]\n\n",
  ];
  const server = new ScriptedServer(streamed(pieces), whole("Done."), whole("Again."));
  const chat = chatAt(server);
  const events = await all(chat.send("Look"));
  const called = (call_id: string, name: string, given: string): UnkeptEvent => ({
    type: "item.done",
    item: { type: "function_call", call_id, name, arguments: given },
  });
  assert.deepEqual(events, [
    { type: "reasoning.delta", text: "Hm. " },
    { type: "reasoning.delta", text: "So." },
    { type: "text.delta", text: "No." },
    called("c0", "look", '{"a":1}'),
    called("c2", "stay", ""),
    { type: "turn.finished", reason: "tool_calls", usage: { total_tokens: 7 } },
  ]);
  const result: UnkeptMessage = { role: "tool", tool_call_id: "c0", content: "found" };
  await all(chat.send([result]));
  const sentMessages = server.requests[1]?.body.messages;
  assert.deepEqual(
    sentMessages.map((each: UnkeptMessage) => [each.role, each.tool_call_id ?? each.tool_calls?.length]),
    [["user", undefined], ["assistant", 2], ["tool", "c2"], ["tool", "c0"]],
  );
  await all(chat.send("Again"));
  assert.deepEqual(server.requests[2]?.body.messages.slice(0, 4), sentMessages);
  server.done();
});

test("indexes of calls that a model makes up change no prototype and no other call", async () => {
  const call = (index: unknown): string => delta({ tool_calls: [{ index, id: `${index}`, function: { name: "f" } }] });
  const pieces = [
    ...[null, {}, { choices: null }, { choices: [null, { delta: null }] }].map((chunk) => sent(chunk as object)),
    delta({ tool_calls: [null, { index: 0, function: null }] }),
    ...["__proto__", "length", 4_000_000_000].map(call),
    ...STOP,
  ];
  const chat = chatAt(new ScriptedServer(streamed(pieces)));
  await all(chat.send("Hi"));
  assert.deepEqual(chat.messages[1]?.tool_calls?.map(({ id }) => id), ["", "__proto__", "length", "4000000000"]);
  assert.deepEqual(["id" in [], "name" in [], "arguments" in []], [false, false, false]);
});

test("a silent model has ten minutes", async () => {
  const server = new ScriptedServer(json({ data: [{ id: "only" }] }), whole("At last."));
  await all(chatAt(server, { model: undefined }).send("Hi"));
  assert.equal(server.requests[1]?.body.model, "only");
  assert(server.waits.every((wait) => wait >= 600_000));
});
