import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

type Listener = (event: unknown) => void;

class FakeWorker {
  static last: FakeWorker;
  readonly posted: { number: number; code: string; language: string }[] = [];
  readonly #listeners = new Map<string, Listener>();
  isTerminated = false;

  constructor() {
    FakeWorker.last = this;
  }

  addEventListener(type: string, listener: Listener): void {
    this.#listeners.set(type, listener);
  }

  postMessage(message: { number: number; code: string; language: string }): void {
    this.posted.push(message);
  }

  say(data: unknown): void {
    this.#listeners.get("message")?.({ data });
  }

  terminate(): void {
    this.isTerminated = true;
  }
}

let highlightInWorker: typeof import("../../../src/markdown/highlight/worker-client").highlightInWorker;

beforeEach(async () => {
  vi.useFakeTimers();
  vi.stubGlobal("Worker", FakeWorker);
  vi.resetModules();
  ({ highlightInWorker } = await import("../../../src/markdown/highlight/worker-client"));
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("the worker that highlights code", () => {
  it("may take any time to load", async () => {
    const marks = highlightInWorker("let x", "js");
    vi.advanceTimersByTime(60_000);
    FakeWorker.last.say("ready");
    FakeWorker.last.say({ number: FakeWorker.last.posted[0]?.number, marks: [] });
    expect(await marks).toEqual([]);
  });

  it("has a second for each code once it is loaded, and is replaced if one takes longer", async () => {
    const [slow, next] = [highlightInWorker("slow", "js"), highlightInWorker("let x", "js")];
    const first = FakeWorker.last;
    first.say("ready");
    vi.advanceTimersByTime(1_000);
    expect(await slow).toBe(null);
    expect(first.isTerminated).toBe(true);
    const second = FakeWorker.last;
    expect(second).not.toBe(first);
    second.say("ready");
    second.say({ number: second.posted[0]?.number, marks: [] });
    expect(await next).toEqual([]);
    const last = highlightInWorker("slow again", "js");
    vi.advanceTimersByTime(1_000);
    expect(await last).toBe(null);
    expect(second.isTerminated).toBe(true);
  });
});
