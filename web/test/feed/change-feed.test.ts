import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { errors, type Change, type Client } from "turnledger";
import { ChangeFeed } from "../../src/feed/change-feed";

/** A stream that somebody reads. */
interface Reading {
  readonly after: string | undefined;
  tell(type: Change["type"], position: string): Promise<void>;
  fail(problem: unknown): Promise<void>;
  isLeft: boolean;
}

let readings: Reading[] = [];
let opened: ChangeFeed[] = [];
let channels: BroadcastChannel[] = [];
const { BroadcastChannel: Real } = globalThis;
class Channel extends Real {
  constructor(name: string) {
    super(name);
    channels.push(this);
  }
}
const locks = new Map<string, { queue: (() => void)[]; steal(): void }>();

/** As those of a browser: who waits has it when who holds it ends, or has it taken away. */
const LOCKS = {
  async request(name: string, options: LockOptions, work: () => Promise<void>): Promise<void> {
    const before = locks.get(name);
    if (options.steal) before?.steal();
    else if (before) {
      await new Promise<void>((resolve, reject) => {
        before.queue.push(resolve);
        options.signal?.addEventListener("abort", () => {
          before.queue.splice(before.queue.indexOf(resolve), 1);
          reject(options.signal!.reason as Error);
        });
      });
    }
    const lock = { queue: before?.queue ?? [], steal: () => {} };
    locks.set(name, lock);
    const stolen = new Promise<never>((_, reject) => {
      lock.steal = () => reject(new DOMException("Stolen.", "AbortError"));
    });
    try {
      await Promise.race([stolen, work()]);
    } finally {
      if (locks.get(name) === lock) {
        locks.delete(name);
        lock.queue.shift()?.();
      }
    }
  },
};

const client = {
  events: ({ after, signal }: { after?: string; signal: AbortSignal }) => read(after, signal),
} as unknown as Client;

async function* read(after: string | undefined, signal: AbortSignal): AsyncGenerator<Change, void, undefined> {
  const told: (Change | { problem: unknown })[] = [];
  let wake = (): void => {};
  const put = async (each: (typeof told)[number]): Promise<void> => {
    told.push(each);
    wake();
    await settled();
  };
  const reading: Reading = {
    after,
    tell: (type, position) => put({ type, position, at: 0 } as Change),
    fail: (problem) => put({ problem }),
    isLeft: false,
  };
  readings.push(reading);
  signal.addEventListener("abort", () => {
    reading.isLeft = true;
    void put({ problem: signal.reason });
  });
  for (;;) {
    const next = told.shift();
    if (next === undefined) await new Promise<void>((resolve) => (wake = resolve));
    else if ("problem" in next) throw next.problem;
    else yield next;
  }
}

/** What was posted is heard after a while of its own. */
async function settled(): Promise<void> {
  for (let round = 0; round < 20; round++) await new Promise((resolve) => setImmediate(resolve));
}

function open(name = "somebody", refused = vi.fn()): { feed: ChangeFeed; heard: string[]; refused: typeof refused } {
  const feed = new ChangeFeed(client, name, refused);
  const heard: string[] = [];
  feed.listen(({ type, position }) => heard.push(`${type} ${position}`));
  opened.push(feed);
  return { feed, heard, refused };
}

function look(visibility: "visible" | "hidden"): void {
  Object.defineProperty(document, "visibilityState", { value: visibility, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}

beforeEach(() => {
  readings = [];
  channels = [];
  vi.stubGlobal("BroadcastChannel", Channel);
  locks.clear();
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] });
  Object.defineProperty(navigator, "locks", { value: LOCKS, configurable: true });
  look("visible");
});

afterEach(() => {
  for (const feed of opened.splice(0)) feed.close();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("one tab reads after the list's position, and all receive each change once", async () => {
  const [one, other] = [open(), open()];
  await settled();
  expect(readings).toEqual([]);
  other.feed.start("as of the other");
  await settled();
  expect(readings).toEqual([]); // it is for the one who leads to begin
  one.feed.start("as of the one");
  await settled();
  expect(readings.map(({ after }) => after)).toEqual(["as of the one"]);
  await readings[0]!.tell("chat.deleted", "1");
  expect(one.heard).toEqual(["start as of the one", "chat.deleted 1"]);
  expect(other.heard.filter((each) => !each.startsWith("gap"))).toEqual(["chat.deleted 1"]);
  expect([one.feed.connection.value, other.feed.connection.value]).toEqual(["live", "live"]);
});

test("a later tab joins, and continues after the last change when the leader closes", async () => {
  const one = open();
  one.feed.start("as of");
  await settled();
  await readings[0]!.tell("chat.deleted", "1");
  const later = open();
  await settled();
  await readings[0]!.tell("chat.deleted", "2");
  expect(later.heard).toEqual(["chat.deleted 2"]);
  one.feed.close();
  await settled();
  expect(readings[0]!.isLeft).toBe(true);
  expect(readings[1]!.after).toBe("2");
  await readings[1]!.tell("chat.deleted", "3");
  expect(later.heard).toEqual(["chat.deleted 2", "chat.deleted 3"]);
  expect(one.heard).toHaveLength(3); // and nothing since it was closed
});

test("all tabs receive a gap and the changes after it", async () => {
  const [one, other] = [open(), open()];
  one.feed.start("as of");
  await settled();
  other.heard.length = 0;
  await readings[0]!.tell("gap", "9");
  await readings[0]!.tell("chat.deleted", "10");
  expect(one.heard.slice(1)).toEqual(["gap 9", "chat.deleted 10"]);
  expect(other.heard).toEqual(["gap 9", "chat.deleted 10"]);
});

test("a frozen leader is replaced, and steps down when it wakes up", async () => {
  const [frozen, other] = [open(), open()];
  frozen.feed.start("as of");
  await settled();
  await readings[0]!.tell("chat.deleted", "1");
  // It does not answer any more.
  vi.spyOn(channels[0]!, "postMessage").mockImplementation(() => {});
  for (let round = 0; round < 4; round++) {
    vi.advanceTimersByTime(4_000);
    await settled();
  }
  expect(readings.map(({ after, isLeft }) => [after, isLeft])).toEqual([
    ["as of", true],
    ["1", false],
  ]);
  await readings[1]!.tell("chat.deleted", "2");
  expect(other.heard.slice(-1)).toEqual(["chat.deleted 2"]);
  expect(frozen.heard.slice(-1)).toEqual(["chat.deleted 2"]);
});

test("a page in the cache reads nothing, and catches up when it is restored", async () => {
  const { feed, heard } = open();
  feed.start("as of");
  await settled();
  await readings[0]!.tell("chat.deleted", "1");
  dispatchEvent(new Event("pagehide"));
  await settled();
  expect(readings[0]!.isLeft).toBe(true);
  const other = open(); // which is in the same window here, and was not there to be put away
  other.feed.start("as of the other");
  await settled();
  await readings[1]!.tell("chat.deleted", "2");
  expect(heard).toEqual(["start as of", "chat.deleted 1"]);
  dispatchEvent(Object.assign(new Event("pageshow"), { persisted: true }));
  await settled();
  await readings[1]!.tell("chat.deleted", "3");
  expect(heard.slice(2)).toEqual(["gap 2", "chat.deleted 3"]);
});

test("a tab that slept receives the missed changes from another", async () => {
  const [one, slept] = [open(), open()];
  one.feed.start("as of");
  await settled();
  await readings[0]!.tell("chat.deleted", "1");
  const deaf = vi.spyOn(channels[1]!, "dispatchEvent").mockImplementation(() => true);
  vi.spyOn(channels[0]!, "postMessage").mockImplementationOnce(() => {}); // and this is lost on its way
  await readings[0]!.tell("chat.deleted", "2");
  deaf.mockRestore();
  await readings[0]!.tell("chat.deleted", "3");
  expect(slept.heard.slice(-3)).toEqual(["chat.deleted 1", "chat.deleted 2", "chat.deleted 3"]);
});

test("without locks, each visible tab reads for itself and continues", async () => {
  Object.defineProperty(navigator, "locks", { value: undefined, configurable: true });
  delete (navigator as { locks?: unknown }).locks;
  const { feed, heard } = open();
  feed.start("as of");
  await settled();
  await readings[0]!.tell("chat.deleted", "1");
  look("hidden");
  await settled();
  expect(readings.map(({ isLeft }) => isLeft)).toEqual([true]);
  look("visible");
  await settled();
  expect(readings.map(({ after }) => after)).toEqual(["as of", "1"]);
  await readings[1]!.tell("chat.deleted", "2");
  expect(heard).toEqual(["start as of", "chat.deleted 1", "chat.deleted 2"]);
});

test("without a list the feed begins now with a start event", async () => {
  const { feed, heard } = open();
  feed.start();
  await settled();
  expect(readings[0]!.after).toBeUndefined();
  await readings[0]!.tell("start", "5");
  await readings[0]!.tell("chat.deleted", "6");
  expect(heard).toEqual(["start 5", "chat.deleted 6"]);
});

test("revoked access is reported; other errors are retried", async () => {
  const { feed, refused } = open();
  feed.start("as of");
  await settled();
  await readings[0]!.fail(new errors.TooManyReaders("too_many_readers", "There are too many."));
  expect([feed.connection.value, refused.mock.calls.length]).toEqual(["lost", 0]);
  vi.advanceTimersByTime(5_000);
  await settled();
  await readings[1]!.tell("chat.deleted", "1");
  expect(feed.connection.value).toBe("live");
  await readings[1]!.fail(new errors.NotAdmitted("token_revoked", "It is over."));
  expect(refused).toHaveBeenCalledOnce();
  vi.advanceTimersByTime(60_000);
  await settled();
  expect(readings).toHaveLength(2);
});

test("a short outage is not shown", async () => {
  const { feed } = open();
  feed.start("as of");
  await settled();
  feed.noteConnection(true);
  vi.advanceTimersByTime(900);
  feed.noteConnection(false);
  vi.advanceTimersByTime(900);
  expect(feed.connection.value).toBe("live");
  feed.noteConnection(true);
  vi.advanceTimersByTime(1_000);
  expect(feed.connection.value).toBe("lost");
});

test("tabs of another credential share nothing", async () => {
  const [one, other] = [open("one"), open("other")];
  for (const { feed } of [one, other]) feed.start("as of");
  await settled();
  expect(readings).toHaveLength(2);
  await readings[0]!.tell("chat.deleted", "1");
  expect(other.heard).toEqual(["start as of"]);
});
