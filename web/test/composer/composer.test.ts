import { describe, expect, it, vi } from "vitest";
import { errors } from "turnledger";
import { offeredDraftOf, type Composer } from "../../src/composer/composer";
import { failedOf, MadeUpSession, MadeUpThread, runningOf, turnOf } from "./fakes";

interface Writer {
  readonly session: MadeUpSession;
  readonly thread: MadeUpThread;
  readonly composer: Composer;
}

function writer(id: string | null = "conv_1", session = new MadeUpSession()): Writer {
  const thread = new MadeUpThread(id);
  return { session, thread, composer: session.composers.of(thread.shown) };
}

function send(composer: Composer, ...texts: string[]): void {
  for (const text of texts) {
    composer.write(text);
    composer.send();
  }
}

describe("sending", () => {
  it("empties the composer, and names the model", () => {
    const { thread, composer } = writer();
    send(composer, "Hello");
    expect(composer.text.value).toBe("");
    expect(thread.sent).toEqual([["Hello", { model: "one", onBusy: "queue" }]]);
  });

  it("trims blank lines around a message, and nothing else", () => {
    const { thread, composer } = writer();
    send(composer, "\n \n    code\n\n  more\n\n ");
    expect(thread.sent[0]?.[0]).toBe("    code\n\n  more");
  });

  it("sends nothing if the field is empty", () => {
    const { thread, composer } = writer();
    send(composer, "", " \n ");
    expect(thread.sent).toEqual([]);
  });

  it("applies the chosen policy in all chats while a turn runs, and queues otherwise", () => {
    const { session, thread, composer } = writer();
    session.composers.policy.value = "interrupt";
    send(composer, "idle");
    thread.pending.value = [runningOf("idle")];
    send(composer, "busy");
    const other = writer("conv_2", session);
    other.thread.pending.value = [runningOf("there")];
    send(other.composer, "busy, too");
    const policies = [...thread.sent, ...other.thread.sent].map(([, { onBusy }]) => onBusy);
    expect(policies).toEqual(["queue", "interrupt", "interrupt"]);
  });

  it("waits for the models in order, as a draft until then", async () => {
    const session = new MadeUpSession();
    session.areModelsKnown.value = false;
    session.model.value = null;
    session.models.value = [];
    const { thread, composer } = writer("conv_1", session);
    send(composer, "first", "second");
    expect([composer.text.value, composer.waiting.value.length, thread.sent.length]).toEqual(["", 2, 0]);
    expect(session.composers.drafts.read("conv_1")).toBe("first\n\nsecond");
    composer.write("third");
    expect(session.composers.drafts.read("conv_1")).toBe("first\n\nsecond\n\nthird");
    composer.write("");
    session.models.value = [{ id: "one" }];
    session.model.value = "one";
    session.areModelsKnown.value = true;
    await vi.waitFor(() => expect(thread.sent.map(([text, { model }]) => [text, model])).toEqual([
      ["first", "one"],
      ["second", "one"],
    ]));
    expect([composer.waiting.value, session.composers.drafts.read("conv_1")]).toEqual([[], ""]);
  });

  it("waits until the chat has loaded, or cannot be", async () => {
    const { thread, composer } = writer("conv_1");
    thread.isLoaded.value = false;
    send(composer, "first");
    thread.problem.value = new errors.ServerUnavailable("server_unavailable", "Nobody there.");
    await Promise.resolve();
    expect([composer.waiting.value.length, thread.sent.length]).toEqual([1, 0]);
    thread.isLoaded.value = true;
    await vi.waitFor(() => expect(thread.sent.map(([text]) => text)).toEqual(["first"]));
    thread.isLoaded.value = false;
    send(composer, "second");
    thread.problem.value = new errors.ConversationDeleted("conversation_deleted", "It was deleted.");
    await vi.waitFor(() => expect(thread.sent.map(([text]) => text)).toEqual(["first", "second"]));
  });

  it("is blocked with a reason by permanent problems", () => {
    const reasons = [
      (session: MadeUpSession) => [(session.models.value = []), (session.model.value = null)],
      (_: MadeUpSession, thread: MadeUpThread) =>
        (thread.problem.value = new errors.ConversationDeleted("conversation_deleted", "It was deleted.")),
    ].map((hinder) => {
      const { session, thread, composer } = writer();
      hinder(session, thread);
      send(composer, "stays");
      expect([composer.text.value, thread.sent]).toEqual(["stays", []]);
      return composer.blockedReason.value;
    });
    expect(reasons).toEqual(["No model is available.", ""]);
  });

  it("is blocked once the token has expired", () => {
    vi.useFakeTimers();
    try {
      const { composer } = writer("conv_1", new MadeUpSession({ expiresAt: Date.now() + 1_000 }));
      expect(composer.blockedReason.value).toBeNull();
      vi.advanceTimersByTime(1_001);
      expect(composer.blockedReason.value).toContain("expired");
    } finally {
      vi.useRealTimers();
    }
  });

  it("is not blocked by an unreachable server", () => {
    const { thread, composer } = writer();
    thread.problem.value = new errors.ServerUnavailable("server_unavailable", "Nobody there.");
    expect(composer.blockedReason.value).toBeNull();
  });
});

describe("a failed message", () => {
  it("returns to an empty field, and is a draft at once", () => {
    const { session, thread, composer } = writer();
    thread.failed.value = failedOf("again");
    expect(composer.text.value).toBe("again");
    expect(session.composers.drafts.read("conv_1")).toBe("again");
  });

  it("is offered if the field is not empty, and restored before its text", () => {
    const { thread, composer } = writer();
    composer.write("new");
    thread.failed.value = failedOf("old");
    expect([composer.text.value, composer.offered.value]).toEqual(["new", "old"]);
    composer.restoreOffered();
    expect([composer.text.value, composer.offered.value]).toEqual(["old\n\nnew", null]);
  });

  it("is offered after a reload until it is restored or discarded", () => {
    const { session, thread, composer } = writer();
    composer.write("new");
    thread.failed.value = failedOf("old");
    const reloaded = writer("conv_1", session);
    expect(reloaded.composer.offered.value).toBe("old");
    reloaded.composer.discardOffered();
    expect(writer("conv_1", session).composer.offered.value).toBeNull();
  });

  it("is offered in the new chat once that is created", () => {
    const { session, thread, composer } = writer(null);
    composer.write("new");
    thread.failed.value = failedOf("old");
    thread.id.value = "conv_9";
    expect(writer("conv_9", session).composer.offered.value).toBe("old");
    expect(writer(null, session).composer.offered.value).toBeNull();
  });

  it("is offered with later failed ones until it is sent again, also after a reload", async () => {
    const { session, thread, composer } = writer();
    for (const text of ["one", "two", "three"]) thread.failed.value = failedOf(text, { name: text });
    expect([composer.text.value, composer.offered.value]).toEqual(["one", "two\n\nthree"]);
    thread.failed.value = null;
    thread.pending.value = [runningOf("three")];
    await Promise.resolve();
    expect([composer.text.value, composer.offered.value]).toEqual(["one", "two"]);
    expect(session.composers.drafts.read(offeredDraftOf("conv_1"))).toBe("two");
  });

  it("can be discarded", () => {
    const { thread, composer } = writer();
    composer.write("new");
    thread.failed.value = failedOf("old");
    composer.discardOffered();
    expect([composer.text.value, composer.offered.value]).toEqual(["new", null]);
  });

  it("of another tab does not return to the field", () => {
    const { thread, composer } = writer();
    thread.failed.value = failedOf("theirs", { isLocal: false });
    expect([composer.text.value, composer.offered.value]).toEqual(["", null]);
  });

  it("leaves the field when it is sent again after a reload", async () => {
    const { thread, composer } = writer();
    composer.write("again"); // it was put back by the page before
    thread.failed.value = failedOf("again", { isLocal: false });
    thread.failed.value = null;
    thread.pending.value = [runningOf("again")];
    await Promise.resolve();
    expect(composer.text.value).toBe("");
  });

  it.each([
    ["goes away when it is asked again", false, ""],
    ["stays when it is asked again and somebody has changed it", true, "again and more"],
  ])("%s", async (_, isChanged, left) => {
    const { thread, composer } = writer();
    thread.failed.value = failedOf("again");
    if (isChanged) composer.write("again and more");
    thread.failed.value = null;
    thread.pending.value = [runningOf("again")];
    await Promise.resolve();
    expect(composer.text.value).toBe(left);
  });

  it("stays if the failure is cleared for another reason", async () => {
    const { thread, composer } = writer();
    thread.failed.value = failedOf("first");
    thread.pending.value = [runningOf("second")];
    thread.failed.value = null;
    await Promise.resolve();
    expect(composer.text.value).toBe("first");
  });

  it("of an edit is only offered", () => {
    const { thread, composer } = writer();
    thread.failed.value = failedOf("edited", { replaces: "turn_1" });
    expect([composer.text.value, composer.offered.value]).toEqual(["", "edited"]);
  });
});

describe("a composer's draft", () => {
  it("is restored with the chat", () => {
    const { session, composer } = writer();
    composer.write("kept");
    session.composers.drafts.flush();
    expect(writer("conv_1", session).composer.text.value).toBe("kept");
    expect(writer("conv_2", session).composer.text.value).toBe("");
  });

  it("moves to the new chat when that is created", () => {
    const { session, thread, composer } = writer(null);
    composer.write("for the new one");
    thread.id.value = "conv_9";
    expect(session.composers.drafts.read("conv_9")).toBe("for the new one");
    expect(session.composers.drafts.read("new")).toBe("");
  });

  it("of another new chat stays when one is created", () => {
    const { session, thread, composer } = writer(null);
    send(composer, "first");
    const next = writer(null, session);
    next.composer.write("in the next one");
    thread.id.value = "conv_9";
    expect(session.composers.drafts.read("new")).toBe("in the next one");
    expect(session.composers.drafts.read("conv_9")).toBe("");
  });

  it("is not stored for a temporary chat", () => {
    const session = new MadeUpSession();
    session.composers.drafts.writeNow("new", "secret");
    const thread = new MadeUpThread();
    thread.isKept = false;
    const composer = session.composers.of(thread.shown);
    expect(composer.text.value).toBe("");
    composer.write("secret");
    thread.id.value = "conv_1";
    expect(session.composers.drafts.read("new")).toBe("secret");
    session.composers.drafts.drop("new");
    session.composers.drafts.flush();
    expect(session.storage.names()).toEqual([]);
    expect(session.composers.of(thread.shown).text.value).toBe("secret");
  });

  it("is deleted and restored with its chat", () => {
    const { session, composer } = writer();
    composer.write("kept");
    session.composers.drafts.flush();
    const tell = (type: string): void =>
      session.listeners.forEach((listener) => listener({ type, chat: "conv_1" } as never));
    tell("chat.deleted");
    expect(session.storage.names()).toEqual([]);
    tell("chat.restored");
    expect(session.composers.drafts.read("conv_1")).toBe("kept");
  });
});

describe("recalling", () => {
  it("steps through sent messages, and back to an empty field", () => {
    const { thread, composer } = writer();
    thread.turns.value = [turnOf("first"), turnOf("second")];
    thread.pending.value = [runningOf("third")];
    const shown = ([1, 1, 1, 1, -1, -1, -1, -1] as const).map((step) => [composer.recall(step), composer.text.value]);
    expect(shown).toEqual([
      [true, "third"],
      [true, "second"],
      [true, "first"],
      [false, "first"],
      [true, "second"],
      [true, "third"],
      [true, ""],
      [false, ""],
    ]);
  });

  it("never replaces written text", () => {
    const { thread, composer } = writer();
    thread.turns.value = [turnOf("first")];
    composer.write("mine");
    expect([composer.recall(1), composer.text.value]).toEqual([false, "mine"]);
    composer.write("");
    composer.recall(1);
    composer.write("first, changed");
    expect([composer.recall(-1), composer.text.value]).toEqual([false, "first, changed"]);
  });
});
