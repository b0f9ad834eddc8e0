/** One request, repeated until it is answered. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, errors, type ClientOptions } from "../src/index.js";
import {
  all,
  CHAT,
  CHAT_INFO,
  error,
  events,
  finished,
  json,
  REFUSED,
  ScriptedServer,
  SILENCE,
  STARTED,
} from "./scripted-server.js";
import { chatOf } from "./scripted-chat.js";

const info = json({ ...CHAT_INFO, turns: [], before: null, attempts: [] });

test("pauses double up to the longest, each a random part shorter", async () => {
  const refused = Array.from({ length: 8 }, () => REFUSED) as (typeof REFUSED)[];
  const server = new ScriptedServer(...refused, info);
  await chatOf(server, { retries: { times: 8, maxPause: 1_000 } }).info();
  assert.deepEqual(server.pauses, [100, 200, 400, 800, 1000, 1000, 1000, 1000]);
  const lucky = new ScriptedServer(REFUSED, info);
  await chatOf(lucky, { random: () => 0 }).info();
  assert.deepEqual(lucky.pauses, [50]);
});

test("a client waits as long as the server asks, and a random part longer", async () => {
  const pauses: number[] = [];
  for (const random of [0, 0.5, 1]) {
    const server = new ScriptedServer(error(429, "server_busy", { "retry-after": "7" }), info);
    await server.client({ random: () => random }).chats.open(CHAT).info();
    pauses.push(...server.pauses);
  }
  assert.deepEqual(pauses, [7000, 8750, 10500]);
});

test("no retry begins once the patience is used up", async () => {
  const server = new ScriptedServer(REFUSED, REFUSED, REFUSED);
  await assert.rejects(
    chatOf(server, { retries: { patience: 500 } }).info(),
    errors.ServerUnavailable,
  );
  assert.deepEqual(server.pauses, [100, 200]);
  const asking = new ScriptedServer(error(503, "store_unavailable", { "retry-after": "3600" }));
  await assert.rejects(chatOf(asking).info(), errors.StoreUnavailable);
  assert.deepEqual(asking.pauses, []);
});

test("an error that a retry cannot mend is not retried", async () => {
  const refusals = [
    error(503, "server_busy", { "x-should-retry": "false" }),
    error(502, "model_unavailable"),
    error(409, "conversation_busy"),
    error(500, "store_corrupt", { "x-should-retry": "false" }),
    error(400, "invalid_input"),
  ];
  for (const refusal of refusals) {
    const server = new ScriptedServer(refusal);
    await assert.rejects(chatOf(server).info(), errors.TurnledgerError);
    server.done();
  }
});

test("an incomplete response is requested again", async () => {
  const server = new ScriptedServer(
    { pieces: ['{"id":'], ending: "cut" },
    { pieces: ['{"id"'] },
    { pieces: [], ending: "silence" },
    info,
  );
  assert.equal((await chatOf(server).info()).id, CHAT);
  server.done();
});

test("characters that are split across pieces are decoded whole", async () => {
  const bytes = new TextEncoder().encode(
    JSON.stringify({ ...CHAT_INFO, title: "é🦊", turns: [], before: null, attempts: [] }),
  );
  const server = new ScriptedServer({ pieces: Array.from(bytes, (byte) => Uint8Array.of(byte)) });
  assert.equal((await chatOf(server).info()).title, "é🦊");
});

test("a request for a secret is not repeated once it may have arrived", async () => {
  const lost = new ScriptedServer({ pieces: [], ending: "cut" });
  await assert.rejects(
    lost.client().tokens.create({ scopes: ["chats:read"] }),
    (problem) => problem instanceof errors.ServerUnavailable && /may have been carried out/.test(problem.message),
  );
  lost.done();
  const refused = new ScriptedServer(
    error(429, "too_many_requests"),
    json({ id: "tok_1", chat_scope: null, token: "tlt_1" }),
  );
  assert.equal((await refused.client().tokens.create({ scopes: ["chats:read"], expiresIn: 60 })).token, "tlt_1");
  assert.deepEqual(refused.requests[1]?.body, { scopes: ["chats:read"], expires_in: 60 });
});

test("a deletion is repeated after a lost response", async () => {
  const server = new ScriptedServer({ pieces: [], ending: "cut" }, json({ id: CHAT, state: "deleted", purge_at: 1 }));
  await chatOf(server).delete();
  assert.deepEqual(server.requests[0], server.requests[1]);
  server.done();
});

test("a long body has more time to be sent", async () => {
  const server = new ScriptedServer({ pieces: ['{"done":{}}'] });
  await server.client().importChats("a".repeat(1_600_000));
  assert.deepEqual(server.waits, [SILENCE + 100_000, SILENCE, SILENCE]);
});

test("each request asks for its token again", async () => {
  let count = 0;
  const server = new ScriptedServer(REFUSED, info);
  await chatOf(server, { apiKey: async () => `tlt_${++count}` }).info();
  assert.deepEqual(
    server.requests.map((each) => each.headers["authorization"]),
    ["Bearer tlt_1", "Bearer tlt_2"],
  );
});

test("a token is not sent over plain http to another machine unless that is allowed", async () => {
  const server = new ScriptedServer(info, info, info, info);
  const ask = (url: string, options: ClientOptions): Promise<unknown> =>
    new Client(url, { ...server.options, ...options }).chats.open(CHAT).info();
  for (const url of ["http://chat.example.com", "http://10.0.0.5:8383", "http://localhost.example", "http://evil.test/a.localhost"]) {
    await assert.rejects(ask(url, { apiKey: "tlt_x" }), /Use https, or set allowHttp/);
  }
  assert.equal(server.requests.length, 0);
  await ask("http://chat.example.com", {});
  await ask("http://chat.example.com", { apiKey: "tlt_x", allowHttp: true });
  await ask("http://[::1]:8383", { apiKey: "tlt_x" });
  await ask("http://127.0.0.1:8383", { apiKey: "tlt_x" });
});

test("a call leaves no listener on its signal", async () => {
  const { signal } = new AbortController();
  let listeners = 0;
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...given: any[]) => (++listeners, (addEventListener as any).apply(signal, given));
  signal.removeEventListener = (...given: any[]) => (--listeners, (removeEventListener as any).apply(signal, given));
  const server = new ScriptedServer(REFUSED, error(503, "shutting_down"), info);
  await chatOf(server).info({ signal });
  const streaming = new ScriptedServer(events([STARTED], "cut"), events([finished()], "end", 2));
  await all(chatOf(streaming).send("Hi", { stream: true, signal }));
  const left = new ScriptedServer(events([STARTED], "silence"));
  for await (const _ of chatOf(left).send("Hi", { stream: true, signal })) break;
  const failing = new ScriptedServer(error(400, "invalid_input"));
  await assert.rejects(chatOf(failing).send("Hi", { signal }), errors.InvalidInput);
  assert.equal(listeners, 0);
});

test("leaving an iteration closes its connection", async () => {
  const server = new ScriptedServer(events([STARTED, STARTED], "silence"));
  for await (const _ of chatOf(server).send("Hi", { stream: true })) break;
  server.done();
  const headers = { "content-type": "application/x-ndjson" };
  const lines = new ScriptedServer({ headers, pieces: ["a\nb\n"], ending: "silence" });
  for await (const _ of chatOf(lines).export()) break;
  await Promise.resolve();
  lines.done();
});

test("an aborted signal sends nothing", async () => {
  const server = new ScriptedServer();
  const signal = AbortSignal.abort("never mind");
  await assert.rejects(chatOf(server).info({ signal }), (problem) => problem === "never mind");
  server.done();
});

test("redirects are not followed", async () => {
  let redirect: unknown;
  const server = new ScriptedServer();
  const fetch = async (_: string, request: RequestInit): Promise<Response> => {
    ({ redirect } = request);
    return new Response(null, { status: 307, headers: { location: "http://elsewhere.test" } });
  };
  await assert.rejects(server.client({ fetch }).models(), { code: "status_307" });
  assert.equal(redirect, "manual");
});

test("an invalid token is neither sent nor shown in the error", async () => {
  for (const apiKey of ["tlt_secret\n", "tlt_secret tlt_secret", "tlt_s\u00e9cret", () => "tlt_secret\n"]) {
    const server = new ScriptedServer();
    await assert.rejects(
      server.client({ apiKey }).models(),
      (problem) => problem instanceof errors.InvalidInput && !/cret/.test(problem.message),
    );
    server.done();
  }
});

test("an invalid address is refused at once, and its password is not shown in the error", () => {
  for (const address of ["127.0.0.1:8383", "ftp://server.test", "http://ann:secret@server.test", "http://", "http://a b"]) {
    assert.throws(
      () => new Client(address),
      (problem) => problem instanceof errors.InvalidInput && !/secret/.test(problem.message),
    );
  }
  for (const address of ["", "/below", "https://server.test/below/", "http://[::1]:8383"]) {
    assert.equal(new Client(address).baseUrl, address.replace(/\/$/, ""));
  }
});

test("the response of a proxy is not that of a server, whatever its status", async () => {
  const page = { headers: { "content-type": "text/html" }, pieces: ["<p>Log in</p>"] };
  for (const verb of ["models", "events"] as const) {
    const server = new ScriptedServer(page);
    const client = server.client();
    await assert.rejects(verb === "models" ? client.models() : client.events().next(), { code: "request_failed" });
    server.done();
  }
  for (const body of ["null", "7", '{"error":{"code":502}}', '{"error":"Bad Gateway"}']) {
    const server = new ScriptedServer({ status: 502, pieces: [body] }, json({ data: [] }));
    assert.deepEqual(await server.client().models(), []);
    server.done();
  }
});

test("a request for a secret is repeated if the server says that it did nothing", async () => {
  const server = new ScriptedServer(error(503, "shutting_down"), json({ id: "tok_1", token: "tlt_1" }));
  assert.equal((await server.client().tokens.create({ scopes: [] })).token, "tlt_1");
  server.done();
});

test("undefined options have their defaults, and the silence may be endless", async () => {
  const server = new ScriptedServer(REFUSED, info);
  const options = { random: undefined, retries: { times: undefined, firstPause: undefined } } as unknown as ClientOptions;
  await server.client(options).chats.open(CHAT).info();
  assert.deepEqual(server.pauses.length, 1);
  assert(server.pauses[0]! >= 50);
  const fetch = async (): Promise<Response> => {
    await new Promise((resolve) => setTimeout(resolve, 5));
    return Response.json({ data: [] });
  };
  const patient = new Client("https://server.test", { fetch, timeouts: { silence: Infinity }, retries: { times: 0 } });
  assert.deepEqual(await patient.models(), []);
});

test("retryAfter is at most a day", async () => {
  for (const long of ["1e30", "Infinity"]) {
    const sent = new ScriptedServer(error(503, "shutting_down", { "retry-after": long }));
    await assert.rejects(chatOf(sent).info(), { retryAfter: 86_400_000 });
  }
});

test("onConnection reports each loss and return of the connection", async () => {
  const reported: (boolean | string)[] = [];
  const server = new ScriptedServer(
    info,
    REFUSED,
    error(503, "shutting_down"),
    error(429, "server_busy"),
    { pieces: ['{"id":'], ending: "cut" },
    { pieces: ["<p>"], status: 502, headers: { "content-type": "text/html" } },
    info,
    { pieces: ['{"id":'], ending: "silence" },
    error(404, "conversation_not_found"),
  );
  const onConnection = (isLost: boolean): number => reported.push(isLost);
  const chat = chatOf(server, { onConnection });
  for (const call of ["first", "second", "third"]) {
    reported.push(call);
    await chat.info().catch(() => reported.push("refused"));
  }
  const ended = chat.info({ signal: AbortSignal.abort() });
  await assert.rejects(ended);
  assert.deepEqual(reported, ["first", "second", true, false, true, false, "third", true, false, "refused"]);
  server.done();
});
