import { afterEach, describe, expect, it, vi } from "vitest";
import { Outbox } from "turnledger/outbox";
import { MemoryStorage } from "../../src/browser/storage";
import { StorageScope } from "../../src/session/storage-scope";
import { TabOutbox, type WrittenMessage } from "../../src/thread/outbox";
import { rest } from "./fakes";

const SENT = { idempotencyKey: "sent", baseUrl: "", body: '{"chat":"conv_1","input":"Hello"}', headers: {} };
const WRITTEN: Omit<WrittenMessage, "writtenAt"> = {
  name: "written",
  chat: { id: null, name: "new", facts: {} },
  said: { verb: "send", input: "Hello" },
  options: {},
};

/** Locks that all tabs share. */
class Locks {
  readonly #lines = new Map<string, Promise<unknown>>();
  readonly #held = new Set<string>();

  async request(name: string, ...given: unknown[]): Promise<void> {
    const work = given.at(-1) as (lock: object | null) => Promise<void>;
    const { ifAvailable = false } = (given.length > 1 ? given[0] : {}) as { ifAvailable?: boolean };
    if (ifAvailable && this.#held.has(name)) return work(null);
    const before = this.#held.has(name) ? this.#lines.get(name) : undefined;
    this.#held.add(name);
    const mine = Promise.resolve(before).then(() => work({ name }));
    const line = mine.catch(() => {}).finally(() => {
      if (this.#lines.get(name) === line) this.#held.delete(name);
    });
    this.#lines.set(name, line);
    await mine;
  }
}

/** One tab of a browser, and the messages that it sends. */
class Tab {
  readonly ending = new AbortController();
  readonly sent: string[] = [];
  readonly client: Outbox;
  readonly outbox: TabOutbox;
  readonly storage: StorageScope;

  constructor(storage: MemoryStorage) {
    this.storage = new StorageScope("own", storage);
    this.client = new Outbox(this.storage.backend, this.storage.sender);
    this.outbox = new TabOutbox(this.storage, this.client, this.ending.signal);
  }

  watch(isOldExpected = false): void {
    const note = (name: string, isOld: boolean): Promise<void> => {
      this.sent.push(name);
      expect(isOld).toBe(isOldExpected);
      return Promise.resolve();
    };
    this.outbox.watch({
      resend: ({ idempotencyKey }, isOld) => note(idempotencyKey, isOld),
      sendStored: ({ name }, isOld) => note(name, isOld),
    });
  }
}

function shareLocks(): void {
  const locks = new Locks();
  vi.stubGlobal("navigator", { onLine: true, locks });
}

/** A tab that is sending a message until it leaves, and another one that looks on. */
async function watched(): Promise<{ one: Tab; other: Tab; leave: () => void }> {
  vi.useFakeTimers();
  shareLocks();
  const storage = new MemoryStorage();
  const [one, other] = [new Tab(storage), new Tab(storage)];
  let leave = (): void => {};
  one.client.record(SENT);
  void one.outbox.whileHeld("sent", () => new Promise((resolve) => (leave = resolve)));
  await rest();
  other.watch();
  await rest();
  return { one, other, leave: () => leave() };
}

describe("messages of a closed tab", () => {
  afterEach(() => {
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });

  it("are sent by one tab, sent ones before waiting ones", async () => {
    shareLocks();
    const storage = new MemoryStorage();
    const gone = new Tab(storage);
    gone.outbox.write(WRITTEN);
    gone.client.record(SENT);
    const [one, other] = [new Tab(storage), new Tab(storage)];
    one.watch();
    await one.outbox.ready;
    expect(one.sent).toEqual(["sent", "written"]);
    one.client.forget("sent");
    one.outbox.erase("written");
    other.watch();
    await rest();
    expect(other.sent).toEqual([]);
  });

  it("are left to the tab that sends them until it closes", async () => {
    const { other, leave } = await watched();
    expect(other.sent).toEqual([]);
    leave();
    await vi.advanceTimersByTimeAsync(5_000);
    expect(other.sent).toEqual(["sent"]);
  });

  it("precede a message that is written during the takeover", async () => {
    const { other, leave } = await watched();
    leave();
    await rest();
    void other.outbox.sendInOrder("new", async () => void other.sent.push("new"));
    await vi.advanceTimersByTimeAsync(5_000);
    expect(other.sent).toEqual(["sent", "new"]);
  });

  it("precede a message that is written before the takeover", async () => {
    vi.useFakeTimers();
    shareLocks();
    const storage = new MemoryStorage();
    const [gone, other] = [new Tab(storage), new Tab(storage)];
    other.watch();
    gone.client.record(SENT); // and no event of the storage came
    await vi.advanceTimersByTimeAsync(2_000);
    void other.outbox.sendInOrder("new", async () => void other.sent.push("new"));
    await vi.advanceTimersByTimeAsync(5_000);
    expect(other.sent).toEqual(["sent", "new"]);
  });

  it("do not delay other tabs while their tab sends them", async () => {
    const { other } = await watched();
    void other.outbox.sendInOrder("new", async () => void other.sent.push("new"));
    expect(other.sent).toEqual(["new"]); // at once
  });

  it("that wait for a chat are sent in order once it is created", async () => {
    vi.useFakeTimers(); // all of them at the same time
    shareLocks();
    const storage = new MemoryStorage();
    const gone = new Tab(storage);
    const names = ["d", "a", "c", "b"];
    for (const name of names) gone.outbox.write({ ...WRITTEN, name });
    gone.outbox.write({ ...WRITTEN, name: "elsewhere", chat: { id: null, name: "other", facts: {} } });
    gone.outbox.chatCreated("new", "conv_1");
    const asked: [string, string | null, boolean | undefined][] = [];
    const ask = async ({ name, chat }: WrittenMessage): Promise<void> => void asked.push([name, chat.id, chat.wasMade]);
    new Tab(storage).outbox.watch({ resend: async () => {}, sendStored: ask });
    await rest();
    expect(asked).toEqual([...names.map((name) => [name, "conv_1", true]), ["elsewhere", null, undefined]]);
  });

  it("are not sent again if their outcome is known", async () => {
    const { one, other, leave } = await watched();
    one.client.forget("sent");
    leave();
    await vi.advanceTimersByTimeAsync(5_000);
    expect(other.sent).toEqual([]);
  });

  it("are reported as old when a server may have forgotten them", async () => {
    vi.useFakeTimers({ now: 1_000 });
    shareLocks();
    const storage = new MemoryStorage();
    new Tab(storage).outbox.write(WRITTEN);
    vi.setSystemTime(1_000 + 25 * 3_600_000);
    const tab = new Tab(storage);
    tab.watch(true);
    await tab.outbox.ready;
    expect(tab.sent).toEqual(["written"]);
  });

  it("are sent by each loaded tab without locks, under the same keys", async () => {
    vi.stubGlobal("navigator", { onLine: true });
    const storage = new MemoryStorage();
    new Tab(storage).client.record(SENT);
    const tab = new Tab(storage);
    tab.watch();
    await rest();
    expect(tab.sent).toEqual(["sent"]);
    await tab.outbox.whileHeld("other", async () => void tab.sent.push("held"));
    expect(tab.sent).toEqual(["sent", "held"]);
  });

  it("are ignored if the stored value is something else", async () => {
    shareLocks();
    const storage = new MemoryStorage();
    const tab = new Tab(storage);
    tab.storage.set("message x", "{");
    tab.storage.set("message y", '{"name": "y"}');
    tab.watch();
    await rest();
    expect(tab.sent).toEqual([]);
  });
});
