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
  it("empties the composer, and says whom to ask", () => {
    const { thread, composer } = writer();
    send(composer, "Hello");
    expect(composer.text.value).toBe("");
    expect(thread.sent).toEqual([["Hello", { model: "one", onBusy: "queue" }]]);
  });

  it("leaves out blank lines around a message, and nothing else", () => {
    const { thread, composer } = writer();
    send(composer, "\n \n    code\n\n  more\n\n ");
    expect(thread.sent[0]?.[0]).toBe("    code\n\n  more");
  });

  it("sends nothing where nothing is written", () => {
    const { thread, composer } = writer();
    send(composer, "", " \n ");
    expect(thread.sent).toEqual([]);
  });

  it("does as was chosen while something runs, in all chats, and queues where nothing does", () => {
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

  it("waits for the models to be known, in order, and is a draft until then", async () => {
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

  it("is hindered by what no waiting mends, and says by what", () => {
    const reasons = [
      (session: MadeUpSession) => (session.mayRun = false),
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
    expect(reasons).toEqual([
      "You have read-only access.",
      "No model is available.",
      "It was deleted.",
    ]);
  });

  it("is hindered once the token has expired", () => {
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

  it("is not hindered by a server that cannot be reached", () => {
    const { thread, composer } = writer();
    thread.problem.value = new errors.ServerUnavailable("server_unavailable", "Nobody there.");
    expect(composer.blockedReason.value).toBeNull();
  });
});

describe("what failed", () => {
  it("is written again where nothing is, and is a draft at once", () => {
    const { session, thread, composer } = writer();
    thread.failed.value = failedOf("again");
    expect(composer.text.value).toBe("again");
    expect(session.composers.drafts.read("conv_1")).toBe("again");
  });

  it("is offered where something else is written, and put before it", () => {
    const { thread, composer } = writer();
    composer.write("new");
    thread.failed.value = failedOf("old");
    expect([composer.text.value, composer.offered.value]).toEqual(["new", "old"]);
    composer.restoreOffered();
    expect([composer.text.value, composer.offered.value]).toEqual(["old\n\nnew", null]);
  });

  it("is offered after a reload, too, until it is taken or refused", () => {
    const { session, thread, composer } = writer();
    composer.write("new");
    thread.failed.value = failedOf("old");
    const reloaded = writer("conv_1", session);
    expect(reloaded.composer.offered.value).toBe("old");
    reloaded.composer.discardOffered();
    expect(writer("conv_1", session).composer.offered.value).toBeNull();
  });

  it("is offered in the new chat that it was said in, once that is made", () => {
    const { session, thread, composer } = writer(null);
    composer.write("new");
    thread.failed.value = failedOf("old");
    thread.id.value = "conv_9";
    expect(writer("conv_9", session).composer.offered.value).toBe("old");
    expect(writer(null, session).composer.offered.value).toBeNull();
  });

  it("is offered with all others that failed behind it, until it is asked again; also after a reload", async () => {
    const { session, thread, composer } = writer();
    for (const text of ["one", "two", "three"]) thread.failed.value = failedOf(text, { name: text });
    expect([composer.text.value, composer.offered.value]).toEqual(["one", "two\n\nthree"]);
    thread.failed.value = null;
    thread.pending.value = [runningOf("three")];
    await Promise.resolve();
    expect([composer.text.value, composer.offered.value]).toEqual(["one", "two"]);
    expect(session.composers.drafts.read(offeredDraftOf("conv_1"))).toBe("two");
  });

  it("need not be taken", () => {
    const { thread, composer } = writer();
    composer.write("new");
    thread.failed.value = failedOf("old");
    composer.discardOffered();
    expect([composer.text.value, composer.offered.value]).toEqual(["new", null]);
  });

  it("is nobody else's to write", () => {
    const { thread, composer } = writer();
    thread.failed.value = failedOf("theirs", { isLocal: false });
    expect([composer.text.value, composer.offered.value]).toEqual(["", null]);
  });

  it("goes away when it is asked again after a reload", async () => {
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

  it("stays when the failure goes for another reason, as that the next message was answered", async () => {
    const { thread, composer } = writer();
    thread.failed.value = failedOf("first");
    thread.pending.value = [runningOf("second")];
    thread.failed.value = null;
    await Promise.resolve();
    expect(composer.text.value).toBe("first");
  });

  it("is not written again when another message took its place", () => {
    const { session, thread, composer } = writer();
    thread.pending.value = [runningOf("old")];
    session.composers.policy.value = "rollback";
    send(composer, "new");
    thread.failed.value = failedOf("old", { name: "old", isStopped: true });
    expect([composer.text.value, composer.offered.value]).toEqual(["", null]);
    thread.failed.value = failedOf("old", { name: "old" });
    expect(composer.text.value).toBe("old");
  });

  it("of an edit is offered only: sent from here it would be another message", () => {
    const { thread, composer } = writer();
    thread.failed.value = failedOf("edited", { replaces: "turn_1" });
    expect([composer.text.value, composer.offered.value]).toEqual(["", "edited"]);
  });
});

describe("drafts of a composer", () => {
  it("are there when the chat is opened again", () => {
    const { session, composer } = writer();
    composer.write("kept");
    session.composers.drafts.flush();
    expect(writer("conv_1", session).composer.text.value).toBe("kept");
    expect(writer("conv_2", session).composer.text.value).toBe("");
  });

  it("go with the new chat when that is made", () => {
    const { session, thread, composer } = writer(null);
    composer.write("for the new one");
    thread.id.value = "conv_9";
    expect(session.composers.drafts.read("conv_9")).toBe("for the new one");
    expect(session.composers.drafts.read("new")).toBe("");
  });

  it("of another new chat stay when one is made", () => {
    const { session, thread, composer } = writer(null);
    send(composer, "first");
    const next = writer(null, session);
    next.composer.write("in the next one");
    thread.id.value = "conv_9";
    expect(session.composers.drafts.read("new")).toBe("in the next one");
    expect(session.composers.drafts.read("conv_9")).toBe("");
  });

  it("are not kept of a chat that is not", () => {
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

  it("go with a deleted chat, and come back with it", () => {
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
  it("walks through what was said, and back to nothing", () => {
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

  it("takes nobody's words away", () => {
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
