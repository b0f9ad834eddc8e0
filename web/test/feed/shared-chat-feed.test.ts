import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { errors, type Client } from "turnledger";
import { SharedChatFeed } from "../../src/feed/shared-chat-feed";

let answer: () => object;
let stream: () => AsyncGenerator<{ type: string; position: string }>;
let opened: (string | undefined)[];
let signals: AbortSignal[];
let heard: string[];
let feed: SharedChatFeed;
const refused = vi.fn();

const forever = (ending: AbortSignal): Promise<void> =>
  new Promise((resolve) => ending.addEventListener("abort", () => resolve()));

beforeEach(() => {
  vi.useFakeTimers();
  [opened, signals, heard] = [[], [], []];
  answer = () => ({ branch: "branch_1", touchedAt: 1, turnCount: 1, title: null });
  stream = async function* () {
    yield { type: "start", position: "1" };
    await forever(signals.at(-1) as AbortSignal);
  };
  const client = {
    chats: { open: () => ({ read: async () => ({ chat: answer() }) }) },
    events: ({ after, signal }: { after?: string; signal: AbortSignal }) => {
      opened.push(after);
      signals.push(signal);
      return stream();
    },
  } as unknown as Client;
  feed = new SharedChatFeed(client, "conv_1", refused);
  feed.listen((change) => void heard.push(change.type));
});
afterEach(() => {
  feed.close();
  refused.mockReset();
  vi.useRealTimers();
});

const isHidden = (hidden: boolean): void => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
};

function refuse(problem: Error): void {
  stream = async function* () {
    throw problem;
    yield { type: "start", position: "1" };
  };
  isHidden(true);
  isHidden(false);
}

describe("the feed of a shared chat", () => {
  it("emits each event of the stream as a change of the chat, from its start on", async () => {
    stream = async function* () {
      yield { type: "turn.committed", position: "2" };
      yield { type: "chat.deleted", position: "3" };
      await forever(signals.at(-1) as AbortSignal);
    };
    await vi.advanceTimersByTimeAsync(0);
    expect([heard, feed.connection.value]).toEqual([["chat.changed"], "live"]);
    isHidden(true);
    isHidden(false);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(heard).toEqual(["chat.changed", "chat.changed", "chat.changed"]);
    expect(opened).toEqual([undefined, "1"]);
  });

  it("holds no stream while hidden", async () => {
    await vi.advanceTimersByTimeAsync(1_000);
    isHidden(true);
    await vi.advanceTimersByTimeAsync(120_000);
    expect([opened.length, signals[0]?.aborted]).toEqual([1, true]);
    isHidden(false);
    await vi.advanceTimersByTimeAsync(0);
    expect(opened.length).toBe(2);
  });

  it("polls where there is no room for another stream", async () => {
    await vi.advanceTimersByTimeAsync(0);
    refuse(new errors.TurnledgerError("too_many_streams", "Full.", { status: 429 }));
    await vi.advanceTimersByTimeAsync(30_000);
    expect([heard, feed.connection.value]).toEqual([["chat.changed"], "live"]);
    answer = () => ({ branch: "branch_1", touchedAt: 2, turnCount: 2, title: null });
    await vi.advanceTimersByTimeAsync(15_000);
    expect(heard).toEqual(["chat.changed", "chat.changed"]);
    answer = () => {
      throw new errors.ConversationDeleted("conversation_deleted", "Gone.");
    };
    await vi.advanceTimersByTimeAsync(60_000);
    expect(heard.length).toBe(3);
  });

  it("reports revoked access, and ends", async () => {
    await vi.advanceTimersByTimeAsync(0);
    refuse(new errors.NotAdmitted("token_revoked", "No.", { status: 401 }));
    await vi.advanceTimersByTimeAsync(60_000);
    expect([refused.mock.calls.length, feed.connection.value, opened.length]).toEqual([1, "lost", 2]);
  });

  it("shows an outage that lasts longer than a moment", async () => {
    await vi.advanceTimersByTimeAsync(0);
    feed.noteConnection(true);
    expect(feed.connection.value).toBe("live");
    await vi.advanceTimersByTimeAsync(1_000);
    expect(feed.connection.value).toBe("lost");
    feed.noteConnection(false);
    expect(feed.connection.value).toBe("live");
  });
});
