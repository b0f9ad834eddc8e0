import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { textOf, wordsOf } from "turnledger";
import type { Session } from "../../src/session/session";
import { UnkeptThread } from "../../src/thread/unkept-thread";

/** An answer that a test gives bit by bit. */
class Answering {
  readonly body: { messages: { role: string; content: string }[]; model: string };
  readonly headers: Record<string, string>;
  readonly response: Response;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  isLeft = false;

  constructor(request: { body: string; headers: Record<string, string>; signal: AbortSignal }) {
    this.body = JSON.parse(request.body) as Answering["body"];
    this.headers = request.headers;
    const stream = new ReadableStream<Uint8Array>({ start: (controller) => void (this.#controller = controller) });
    request.signal.addEventListener("abort", () => {
      this.isLeft = true;
      this.#controller.error(request.signal.reason);
    });
    const headers = { "content-type": "text/event-stream", "x-conversation-state": "unkept" };
    this.response = new Response(stream, { headers });
  }

  say(text: string): void {
    this.#event(JSON.stringify({ choices: [{ delta: { content: text } }] }));
  }

  think(text: string): void {
    this.#event(JSON.stringify({ choices: [{ delta: { reasoning_content: text } }] }));
  }

  end(): void {
    const usage = { prompt_tokens: 1, completion_tokens: 2 };
    this.#event(JSON.stringify({ choices: [{ delta: {}, finish_reason: "stop" }], usage }));
    this.#event("[DONE]");
    this.#controller.close();
  }

  answer(text: string): void {
    this.say(text);
    this.end();
  }

  #event(data: string): void {
    this.#controller.enqueue(new TextEncoder().encode(`data: ${data}\n\n`));
  }
}

let asked: Answering[];
let refusal: Response | null;
let thread: UnkeptThread;

beforeEach(() => {
  asked = [];
  refusal = null;
  vi.stubGlobal("fetch", async (_: string, request: ConstructorParameters<typeof Answering>[0]) => {
    if (refusal) return refusal;
    asked.push(new Answering(request));
    return (asked.at(-1) as Answering).response;
  });
  thread = new UnkeptThread({
    client: { baseUrl: "http://here" },
    controls: { apiKey: () => "tlt_mine" },
    threads: { newChat: signal({}) },
    composers: { modelOf: () => "demo" },
  } as unknown as Session);
});
afterEach(() => {
  thread.close();
  vi.unstubAllGlobals();
});

const next = async (count: number): Promise<Answering> => {
  await vi.waitFor(() => expect(asked.length).toBe(count));
  return asked[count - 1] as Answering;
};
const shown = (): [string, string, string][] =>
  thread.turns.value.map(({ kind, input, output }) => [kind, input.map(wordsOf).join(), textOf(output)]);

/** Ask, and have it answered. */
async function talk(text: string, answer: string): Promise<void> {
  const sent = thread.send(text);
  const answering = await next(asked.length + 1);
  answering.answer(answer);
  await sent;
}

describe("a temporary chat", () => {
  it("sends the whole conversation, and asks not to store it", async () => {
    await talk("One", "Two");
    await talk("Three", "Four");
    expect(shown()).toEqual([
      ["completed", "One", "Two"],
      ["completed", "Three", "Four"],
    ]);
    const { body, headers } = asked[1] as Answering;
    const told = body.messages.map(({ role, content }) => `${role}: ${content}`);
    expect(told).toEqual(["user: One", "assistant: Two", "user: Three"]);
    expect(headers).toMatchObject({ "x-conversation-keep": "no", authorization: "Bearer tlt_mine" });
    expect([body.model, thread.id.value, thread.info.value, thread.isKept]).toEqual(["demo", null, null, false]);
    expect(thread.turns.value[1]?.details).toMatchObject({ model: "demo", usage: { prompt_tokens: 1 }, finish_reason: "stop" });
  });

  it("streams an answer, reasoning first", async () => {
    const sent = thread.send("One");
    expect(thread.pending.value[0]?.state.value).toBe("sending");
    const answering = await next(1);
    answering.think("Hm");
    answering.say("Tw");
    await vi.waitFor(() => expect(thread.pending.value[0]?.text.value).toBe("Tw"));
    const pending = thread.pending.value[0];
    expect([pending?.reasoning.value, pending?.state.value]).toEqual(["Hm", "running"]);
    answering.answer("o");
    await sent;
    const [turn] = thread.turns.value;
    expect(turn?.output.map(({ type }) => type)).toEqual(["reasoning", "message"]);
    expect([thread.pending.value, turn && thread.nameOf(turn)]).toEqual([[], pending?.name]);
  });

  it("keeps an empty answer, and does not show it to the model", async () => {
    await talk("One", "");
    expect(thread.turns.value[0]?.output.map(({ type }) => type)).toEqual(["message"]);
    await talk("Two", "Three");
    expect((asked[1] as Answering).body.messages.map(({ content }) => content)).toEqual(["One", "Two"]);
    expect(shown().map(([, , answer]) => answer)).toEqual(["", "Three"]);
  });

  it("answers one message at a time; queued ones can be withdrawn", async () => {
    const first = thread.send("One");
    const second = thread.send("Two");
    const third = thread.send("Three");
    expect(thread.pending.value.map(({ state }) => state.value)).toEqual(["sending", "queued", "queued"]);
    await thread.stop({ which: thread.pending.value[1]! });
    expect(thread.failed.value).toMatchObject({ text: "Two", isStopped: true });
    const answering = await next(1);
    answering.answer("First");
    await first;
    const last = await next(2);
    expect(last.body.messages.map(({ content }) => content)).toEqual(["One", "First", "Three"]);
    last.answer("Last");
    await Promise.all([second, third]);
    expect(shown().map(([, input]) => input)).toEqual(["One", "Three"]);
  });

  it.each([
    ["keep", [["interrupted", "One", "Half"]]],
    ["discard", []],
  ] as const)("is stopped with %s", async (policy, left) => {
    const sent = thread.send("One");
    const answering = await next(1);
    answering.say("Half");
    await vi.waitFor(() => expect(thread.pending.value[0]?.text.value).toBe("Half"));
    await thread.stop({ policy });
    await sent;
    expect([shown(), thread.pending.value, answering.isLeft]).toEqual([left, [], true]);
    expect(thread.failed.value?.code ?? null).toBe(policy === "keep" ? null : "turn_stopped");
    await talk("Next", "Answer");
    expect(asked[1]?.body.messages.length).toBe(policy === "keep" ? 3 : 1);
  });

  it.each([
    ["interrupt", ["One", "Half", "Two"]],
    ["rollback", ["Two"]],
  ] as const)("applies the busy policy: %s", async (onBusy, told) => {
    const first = thread.send("One");
    (await next(1)).say("Half");
    await vi.waitFor(() => expect(thread.pending.value[0]?.text.value).toBe("Half"));
    const second = thread.send("Two", { onBusy });
    await first;
    const answering = await next(2);
    expect(answering.body.messages.map(({ content }) => content)).toEqual(told);
    answering.answer("Done");
    await second;
    expect([shown().at(-1), thread.failed.value]).toEqual([["completed", "Two", "Done"], null]);
  });

  it("is unchanged by a failure, which can be retried", async () => {
    await talk("One", "Two");
    refusal = new Response(JSON.stringify({ error: { code: "model_refused", message: "No." } }), { status: 400 });
    await thread.send("Three");
    expect([shown().length, thread.failed.value?.text, thread.failed.value?.isLocal]).toEqual([1, "Three", true]);
    refusal = null;
    const again = thread.retry();
    expect(thread.failed.value).toBe(null);
    const answering = await next(2);
    answering.answer("Four");
    await again;
    expect(shown().at(-1)).toEqual(["completed", "Three", "Four"]);
  });

  it("replaces an edited message and its answer", async () => {
    await talk("One", "Two");
    await talk("Three", "Four");
    const [first] = thread.turns.value;
    const edited = thread.edit(first!, "Won");
    expect(thread.pending.value[0]?.replaces.value).toBe(first?.id);
    const answering = await next(3);
    expect(answering.body.messages.map(({ content }) => content)).toEqual(["Won"]);
    expect(shown().length).toBe(2); // until it is there
    answering.answer("Too");
    await edited;
    expect(shown()).toEqual([["completed", "Won", "Too"]]);
    const again = thread.regenerate(thread.turns.value[0]!);
    const other = await next(4);
    other.answer("Also");
    await again;
    expect(shown()).toEqual([["completed", "Won", "Also"]]);
  });

  it("is gone with the page, and empty after a restore from the cache", async () => {
    await talk("One", "Two");
    const sent = thread.send("Three");
    const answering = await next(2);
    answering.say("Half");
    dispatchEvent(new Event("pagehide"));
    await sent;
    expect([thread.turns.value, thread.pending.value, answering.isLeft]).toEqual([[], [], true]);
    await talk("Four", "Five");
    expect(asked[2]?.body.messages.length).toBe(1);
  });
});
