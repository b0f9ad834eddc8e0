import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { errors, wordsOf, type TurnEvent } from "turnledger";
import { KeptThread } from "../../src/thread/kept-thread";
import { countBefore } from "../../src/thread/pending-turns";
import type { PendingTurn } from "../../src/thread/pending-turn";
import type { SendOptions } from "../../src/thread/thread";
import { threadRows } from "../../src/thread/thread-rows";
import { attemptOf, delta, finished, jobOf, MadeUpSession, rest, said, STARTED, turnOf, turnsOf } from "./fakes";
import type { MadeUpStream } from "./fakes";
import { strings } from "../../src/strings";

let made: MadeUpSession;
let thread: KeptThread;

async function open(id: string | null = "conv_1"): Promise<void> {
  thread = new KeptThread(made.session, id);
  made.shown.value = thread;
  await rest();
}

async function send(text: string, options?: SendOptions): Promise<void> {
  void thread.send(text, options);
  await rest();
}

async function retry(): Promise<void> {
  void thread.retry();
  await rest();
}

async function happens(...change: Parameters<MadeUpSession["happens"]>): Promise<void> {
  made.happens(...change);
  await rest();
}

const textOf = (pending: PendingTurn): string => pending.input.peek().map(wordsOf).join("\n");
const rows = (): string[] =>
  threadRows(thread.turns.value, thread.pending.value, ({ id }) => id).map(({ name }) => name);
const states = (): string[] => thread.pending.value.map((each) => `${textOf(each)}: ${each.state.value}`);

/** The server takes what was asked for last, as this turn. */
function take(turn: string): MadeUpStream {
  const { stream } = made.chat.asked.at(-1)!;
  stream.turnId = turn;
  return stream;
}

/** The server takes and begins it, and tells what follows. */
async function begin(turn: string, ...events: TurnEvent[]): Promise<MadeUpStream> {
  const stream = take(turn).tell(STARTED, ...events);
  await rest();
  return stream;
}

/** It is answered and committed. */
async function answer(stream: MadeUpStream, number: number): Promise<void> {
  const { turnId } = stream;
  made.chat.turns.push(turnOf(number, { id: turnId! }));
  stream.tell(STARTED, delta(2, "Hi"), finished(3));
  await rest();
}

beforeEach(() => {
  made = new MadeUpSession();
  vi.stubGlobal("navigator", { onLine: true });
});

afterEach(() => {
  thread.close();
  made.ending.abort();
  vi.unstubAllGlobals();
});

describe("a message", () => {
  it("is sent, streamed, and in the history under the same name", async () => {
    await open();
    await send("Hello");
    expect(states()).toEqual(["Hello: sending"]);
    const [pending] = thread.pending.value;
    await answer(take("turn_1"), 1);
    expect(thread.pending.value).toEqual([]);
    expect(thread.turns.value.map(({ id }) => id)).toEqual(["turn_1"]);
    expect(thread.nameOf(thread.turns.value[0]!)).toBe(pending?.name);
  });

  it("waits until the server has accepted the one before it", async () => {
    await open();
    for (const text of ["One", "Two", "Three"]) void thread.send(text);
    await rest();
    expect(made.chat.asked.map(({ said: text }) => text)).toEqual(["One"]);
    await begin("turn_1");
    expect(made.chat.asked.map(({ said: text }) => text)).toEqual(["One", "Two"]);
    await happens("turn.queued", "turn_2");
    expect(states()).toEqual(["One: running", "Two: sending", "Three: sending"]);
    take("turn_2");
    await vi.waitFor(() => expect(states()).toEqual(["One: running", "Two: queued", "Three: sending"]));
    await rest();
    expect(made.chat.asked.map(({ said: text }) => text)).toEqual(["One", "Two", "Three"]);
  });

  it("creates the chat once, however many first ones there are", async () => {
    await open(null);
    for (const text of ["One", "Two"]) void thread.send(text);
    await rest();
    await begin("turn_1");
    expect([made.made.length, thread.id.value, made.chat.asked.length]).toEqual([1, "conv_1", 2]);
  });

  it("is stored until a server has accepted it", async () => {
    await open(null);
    void thread.send("Hello");
    expect(made.storage.names("message ").length).toBe(1);
    await rest();
    await begin("turn_1");
    expect(made.storage.names("message ").length).toBe(0);
  });

  it("that fails leaves the history unchanged, and can be retried under its key", async () => {
    await open();
    await send("Hello");
    await begin("turn_1", finished(2, "failed", "model_refused"));
    expect(thread.failed.value).toMatchObject({ text: "Hello", code: "model_refused", isLocal: true });
    expect(thread.pending.value).toEqual([]);
    await retry();
    expect(thread.failed.value).toBeNull();
    expect(made.chat.asked[1]?.name).toBe(made.chat.asked[0]?.name);
    await answer(take("turn_2"), 1);
    expect(thread.turns.value.length).toBe(1);
  });

  it("that was stopped is retried under a new key", async () => {
    await open();
    await send("Hello");
    await begin("turn_1", finished(2, "discarded"));
    expect(thread.failed.value?.isStopped).toBe(true);
    await retry();
    expect(made.chat.asked[1]?.name).not.toBe(made.chat.asked[0]?.name);
  });

  it("without a known turn is withdrawn while offline, and stopped by its key in case a server has it", async () => {
    await open();
    made.connection.value = "lost";
    await send("Hello");
    await thread.stop();
    await rest();
    expect([thread.pending.value.length, thread.failed.value?.isStopped]).toEqual([0, true]);
    expect(made.chat.did).toContainEqual(["stop by key", made.chat.asked[0]!.name]);
    expect(made.storage.names("message ")).toEqual([]);
  });

  it("is stored again for a retry until a server has accepted it", async () => {
    await open();
    await send("Hello");
    await begin("turn_1", finished(2, "failed", "model_unavailable"));
    expect(made.storage.names("message ")).toEqual([]);
    await retry();
    expect(made.storage.names("message ")).toEqual([`message ${made.chat.asked[0]!.name}`]);
    await begin("turn_2");
    expect(made.storage.names("message ")).toEqual([]);
  });

  it("that failed elsewhere is retried once by several tabs", async () => {
    const failure = { code: "model_unavailable", message: "Away." };
    made.chat.attempts = [attemptOf("turn_1", { state: "failed", failure, endedAt: 2 })];
    await open();
    const other = new KeptThread(made.session, "conv_1");
    await rest();
    void thread.retry();
    void other.retry();
    await rest();
    expect(new Set(made.chat.asked.map(({ name }) => name)).size).toBe(1);
    other.close();
  });

  it("is stopped as soon as its turn is known, and no other one is", async () => {
    await open();
    await send("Hello");
    made.happens("turn.queued", "turn_6");
    const stopping = thread.stop({ policy: "discard" });
    await rest();
    expect(made.chat.did.filter((each) => (each as unknown[])[0] === "stop")).toEqual([]);
    take("turn_7");
    await stopping;
    expect(made.chat.did).toContainEqual(["stop", { turn: "turn_7", policy: "discard" }]);
  });

  it("precedes queued ones if it interrupts", async () => {
    await open();
    await send("One");
    await begin("turn_1");
    void thread.send("Two");
    await send("Three", { onBusy: "interrupt" });
    expect(states().map((each) => each.split(":")[0])).toEqual(["One", "Three", "Two"]);
  });

  it("that a later one rolled back leaves no failure", async () => {
    await open();
    await send("One");
    const one = await begin("turn_1");
    await send("Two", { onBusy: "rollback" });
    const two = take("turn_2");
    one.tell(finished(2, "failed", "turn_stopped"));
    await rest();
    expect([states(), thread.failed.value]).toEqual([["Two: sending"], null]);
    await answer(two, 1);
    expect([thread.turns.value.length, thread.failed.value]).toEqual([1, null]);
  });

  it("that was stopped and discarded is forgotten once a later one is answered", async () => {
    await open();
    await send("One");
    const one = await begin("turn_1");
    await send("Two");
    const two = take("turn_2");
    one.tell(finished(2, "failed", "turn_stopped"));
    await rest();
    expect(thread.failed.value?.isStopped).toBe(true);
    await answer(two, 1);
    expect([thread.turns.value.length, thread.failed.value]).toEqual([1, null]);
  });

  it("that failed after its first words says so, also after a reload", async () => {
    await open();
    await send("One");
    await begin("turn_1", delta(2, "Hal"), finished(3, "failed", "model_unavailable"));
    expect(thread.failed.value?.message).toBe(strings.failure.brokeOff);
    const failure = { code: "model_unavailable", message: "" };
    made.chat.attempts = [attemptOf("turn_1", { state: "failed", failure, partial: "Hal" })];
    thread.close();
    await open();
    expect(thread.failed.value?.message).toBe(strings.failure.brokeOff);
  });

  it("that replaces another is sent as a replacement", async () => {
    made.chat.turns = turnsOf(1, 2);
    await open();
    void thread.edit(turnOf(1), "Otherwise");
    await rest();
    await begin("turn_3");
    void thread.regenerate(turnOf(2));
    await rest();
    expect(made.chat.asked.map(({ verb }) => verb)).toEqual(["edit turn_1", "regenerate turn_2"]);
    expect(thread.pending.value.map(({ replaces }) => replaces.value)).toEqual(["turn_1", "turn_2"]);
  });

  it("that replaced another is sent again as a replacement after a reload", async () => {
    made.chat.turns = turnsOf(1, 2);
    const failure = { code: "model_unavailable", message: "" };
    made.chat.attempts = [attemptOf("turn_3", { state: "failed", failure, endedAt: 9_000, replaces: "turn_1" })];
    await open();
    await retry();
    expect(made.chat.asked.map(({ verb }) => verb)).toEqual(["edit turn_1"]);
  });
});

describe("a message of a closed tab", () => {
  const body = '{"chat":"conv_1","input":"Hello"}';
  const unsent = { idempotencyKey: "left", baseUrl: "", body, headers: {}, recordedAt: 1 };

  it("is shown once with its running turn", async () => {
    made.chat.attempts = [attemptOf("turn_1", { input: [said("Hello")] })];
    thread = new KeptThread(made.session, "conv_1");
    made.shown.value = thread;
    void thread.resend(unsent, false);
    await rest();
    expect(states()).toEqual(["Hello: sending"]);
    const { stream } = made.resent[0]!;
    stream.turnId = "turn_1";
    stream.tell(STARTED, delta(2, "Hi"));
    await rest();
    expect(thread.pending.value.map(({ name, text }) => [name, text.value])).toEqual([["left", "Hi"]]);
    expect(made.chat.followed).toEqual([]);
  });

  it("replaces the same turn that was shown as another tab's", async () => {
    made.chat.attempts = [attemptOf("turn_1", { input: [said("Hello")] })];
    await open();
    expect(thread.pending.value.map(({ isLocal }) => isLocal)).toEqual([false]);
    void thread.resend(unsent, false);
    await rest();
    const { stream } = made.resent[0]!;
    stream.turnId = "turn_1";
    stream.tell(STARTED);
    await rest();
    expect(thread.pending.value.map(({ name }) => name)).toEqual(["left"]);
    expect(made.chat.followed[0]?.stream.isClosed).toBe(true);
  });

  it("is reported and put back into the field when it is too old", async () => {
    made.chat.turns = turnsOf(1, 2);
    made.outbox.record(unsent);
    thread = new KeptThread(made.session, "conv_1");
    void thread.resend(unsent, true); // before anybody knows what the chat shows
    await rest();
    expect(made.resent).toEqual([]);
    expect(thread.failed.value).toMatchObject({ code: "outcome_unknown", text: "Hello", isLocal: true });
    expect(made.composed).toEqual([thread]);
    expect(made.outbox.pending()).toEqual([]);
    await happens("chat.changed");
    expect(thread.failed.value).toMatchObject({ code: "outcome_unknown" });
  });

  it("precedes messages that wait for it, whichever was written first", async () => {
    await open();
    void thread.resend(unsent, false);
    await rest();
    made.resent[0]!.stream.turnId = "turn_1";
    await vi.waitFor(() => expect(states()).toEqual(["Hello: queued"]));
    void thread.resend({ ...unsent, idempotencyKey: "went first", body: '{"chat":"conv_1","input":"Wait"}' }, false);
    await rest();
    made.resent[1]!.stream.turnId = "turn_2";
    made.resent[1]!.stream.tell(STARTED);
    await rest();
    expect(states()).toEqual(["Wait: running", "Hello: queued"]);
  });

  it("can be retried as the replacement that it was", async () => {
    await open();
    const body = '{"chat":"conv_1","regenerates":"turn_1"}';
    void thread.resend({ ...unsent, body }, false);
    await rest();
    made.resent[0]!.stream.turnId = "turn_2";
    made.resent[0]!.stream.tell(STARTED, finished(2, "failed", "model_unavailable"));
    await rest();
    await retry();
    expect(made.chat.asked).toEqual([]);
    expect(made.resent.map(({ unsent: { body, idempotencyKey } }) => [body, idempotencyKey])).toEqual([
      [body, "left"],
      [body, "left"],
    ]);
  });
});

describe("a chat", () => {
  it("reports why it cannot be shown, and is shown once it can", async () => {
    made.chat.problem = new errors.ConversationNotFound("conversation_not_found", "There is none.");
    await open();
    expect([thread.problem.value, thread.isLoaded.value]).toEqual([made.chat.problem, false]);
    made.chat.problem = null;
    await happens("chat.restored");
    expect([thread.problem.value, thread.isLoaded.value]).toEqual([null, true]);
  });

  it("shows a turn from elsewhere from start to end", async () => {
    await open();
    made.chat.attempts = [attemptOf("turn_1", { input: [said("From afar")] })];
    await happens("turn.running", "turn_1");
    expect(states()).toEqual(["From afar: running"]);
    made.chat.attempts = [];
    made.chat.turns = [turnOf(1)];
    made.chat.followed[0]?.stream.tell(STARTED, delta(2, "Hi"), finished(3));
    await rest();
    expect([states(), thread.turns.value.length]).toEqual([[], 1]);
  });

  it("shows an edit from elsewhere in place of the turn that it replaces", async () => {
    made.chat.turns = turnsOf(1, 2);
    made.chat.attempts = [attemptOf("turn_3", { input: [said("Edited")], replaces: "turn_2" })];
    await open();
    expect(rows()).toEqual(["turn_1", "turn_3"]);
  });

  it("shows an edit that was queued elsewhere in place of the turn that it replaces", async () => {
    made.chat.turns = turnsOf(1, 2);
    await open();
    await happens("turn.queued", "turn_3");
    made.chat.attempts = [attemptOf("turn_3", { input: [said("Edited")], replaces: "turn_2" })];
    await happens("turn.running", "turn_3");
    expect(rows()).toEqual(["turn_1", "turn_3"]);
  });

  it("ignores a turn that runs beside the branch it shows, and is committed there", async () => {
    await open();
    const reads = made.chat.reads.length;
    made.happens("turn.running", "turn_1", "branch_9");
    await happens("turn.committed", "turn_1", "branch_9");
    expect([states(), made.chat.reads.length]).toEqual([[], reads]);
  });

  it("shows a turn that was committed on a branch while it was switched there", async () => {
    await open();
    made.happens("chat.switched", undefined, "branch_9"); // the read that this starts sees no turn yet
    made.chat.branch = "branch_9";
    made.chat.turns = turnsOf(1, 1);
    await happens("turn.committed", "turn_1", "branch_9");
    expect(thread.turns.value.map(({ id }) => id)).toEqual(["turn_1"]);
  });

  it("shows background turns that wait, with their input and their place, from the start", async () => {
    made.chat.attempts = [attemptOf("turn_1", { input: [said("Wait")] })];
    made.chat.jobs = [jobOf("turn_2", 2, "Second"), jobOf("turn_3", 3, "Third")];
    await open();
    expect(states()).toEqual(["Wait: running", "Second: queued", "Third: queued"]);
    const places = (): number[] => thread.pending.value.map((each) => countBefore(thread.pending.value, each));
    expect(places()).toEqual([0, 2, 3]); // one from another device, which nobody can list, is before them
    await thread.stop({ which: thread.pending.value[2]! });
    expect(made.chat.did).toContainEqual(["stop", { turn: "turn_3" }]);
    made.chat.jobs = [jobOf("turn_2", 1, "Second")];
    await happens("turn.withdrawn", "turn_9");
    expect(places().slice(0, 2)).toEqual([0, 1]);
  });

  it("shows a background turn that was queued meanwhile, and reads the list again if it changed during a read", async () => {
    await open();
    made.chat.jobs = [jobOf("turn_2", 0, "Second")];
    made.happens("turn.queued", "turn_2");
    made.chat.attempts = [attemptOf("turn_2", { input: [said("Second")] })];
    made.chat.jobs = [];
    await happens("turn.running", "turn_2");
    expect(states()).toEqual(["Second: running"]);
    expect(made.chat.did.filter((each) => (each as unknown[])[0] === "jobs").length).toBe(3);
  });

  it("asks for no list of background turns as a visitor, nor for another one while none waits", async () => {
    made.isReader = true;
    await open();
    await happens("gap");
    expect(made.chat.did).toEqual([]);
    thread.close();
    made.isReader = false;
    await open();
    made.happens("turn.running", "turn_1");
    await happens("turn.committed", "turn_1");
    expect(made.chat.did).toEqual([["jobs", "conv_1"]]);
  });

  it("shows queued turns of other tabs, and their input once received", async () => {
    await open();
    await happens("turn.queued", "turn_5");
    expect(states()).toEqual([": queued"]);
    thread.receive({ chat: "conv_1", turn: "turn_5", name: "x", input: [said("Second")], replaces: null });
    expect(states()).toEqual(["Second: queued"]);
    await happens("turn.withdrawn", "turn_5");
    made.chat.followed[0]?.stream.end();
    await rest();
    expect(states()).toEqual([]);
  });

  it("distinguishes simultaneous local and other turns once the server has answered", async () => {
    await open();
    await send("Mine");
    made.happens("turn.queued", "turn_8");
    await happens("turn.queued", "turn_9");
    expect(states()).toEqual(["Mine: sending"]);
    await begin("turn_9");
    expect(states().sort()).toEqual([": queued", "Mine: running"]);
    expect(thread.pending.value.filter(({ isLocal }) => isLocal).map(({ turnId }) => turnId.value)).toEqual(["turn_9"]);
  });

  it("sends its turns to other tabs", async () => {
    await open();
    await send("Hello");
    await begin("turn_1");
    const name = made.chat.asked[0]?.name;
    const telling = { chat: "conv_1", turn: "turn_1", name, input: [said("Hello")], replaces: null };
    expect(made.told).toEqual([telling]);
    expect(thread.tabMessages()).toEqual([telling]);
  });

  it("reads everything again after a gap", async () => {
    await open();
    const before = made.chat.reads.length;
    await happens("gap");
    expect(made.chat.reads.length).toBe(before + 1);
  });

  it("shows the current turns after a switch and an undo", async () => {
    made.chat.turns = turnsOf(1, 2);
    await open();
    await thread.undo();
    expect(thread.turns.value.map(({ number }) => number)).toEqual([1]);
    await thread.switch("branch_2");
    expect(made.chat.did).toContainEqual(["undo", "turn_2"]);
    expect(made.chat.did).toContainEqual(["switch", "branch_2"]);
  });

  it("asks for siblings only of turns that it shows", async () => {
    const branch = { id: "branch_1", base: null, turns: 1, shared: 0, isSide: false };
    made.chat.branchList = [branch, { ...branch, id: "branch_2" }] as never;
    made.chat.turns = [turnOf(1)];
    await open();
    thread.siblings(turnOf(1));
    await rest();
    made.chat.turns = [turnOf(1, { id: "turn_other" })];
    made.chat.did.length = 0;
    await happens("chat.switched");
    thread.siblings(thread.turns.value[0]!);
    await rest();
    expect(made.chat.did).not.toContainEqual(["siblings", "turn_1"]);
    expect(made.chat.did).toContainEqual(["siblings", "turn_other"]);
  });

  it("gives a fork its title", async () => {
    made.chat.turns = [turnOf(1)];
    made.chat.title = "Dinner";
    await open();
    expect(await thread.fork(turnOf(1))).toBe("conv_fork");
    expect(made.chat.did).toContainEqual(["fork", "turn_1", "Dinner"]);
  });

  it("hides a turn from the model, and shows it again", async () => {
    made.chat.turns = turnsOf(1, 2);
    await open();
    const [first, second] = thread.turns.value;
    await thread.showToModel(first!, false);
    expect(thread.turns.value.map((turn) => turn.hiddenFromModel)).toEqual([[0, 1], []]);
    expect(thread.turns.value[1]).toBe(second);
    await thread.showToModel(first!, true);
    expect(thread.turns.value[0]!.hiddenFromModel).toEqual([]);
    expect(made.chat.did).toEqual(expect.arrayContaining([["flag", "turn_1", false], ["flag", "turn_1", true]]));
  });

  it("shows what another tab has hidden from the model", async () => {
    made.chat.turns = turnsOf(1, 2);
    await open();
    made.chat.turns = [turnOf(1, { hiddenFromModel: [0] }), turnOf(2)];
    const before = thread.turns.value[1];
    made.happens("turn.flagged", "turn_1");
    await happens("turn.flagged", "turn_of_another_chat");
    expect(thread.turns.value.map((turn) => turn.hiddenFromModel)).toEqual([[0], []]);
    expect(thread.turns.value[1]).toBe(before);
  });

  it("no longer shows a visitor what was hidden, in whichever turn", async () => {
    made.isReader = true;
    made.chat.turns = turnsOf(1, 9);
    await open();
    made.chat.turns[0] = turnOf(1, { output: [] });
    await happens("turn.flagged");
    expect(thread.turns.value[0]!.output).toEqual([]);
  });

  it("keeps its turns while the server is unavailable", async () => {
    made.chat.turns = turnsOf(1, 2);
    await open();
    made.chat.problem = new errors.ServerUnavailable("server_unavailable", "Nobody there.");
    await thread.load();
    expect([thread.turns.value.length, thread.problem.value]).toEqual([2, null]);
  });
});
