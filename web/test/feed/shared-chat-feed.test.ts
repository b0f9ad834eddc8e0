import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { errors, type Client } from "turnledger";
import { SharedChatFeed } from "../../src/feed/shared-chat-feed";

let answer: () => object;
let looks: number;
let heard: string[];
let feed: SharedChatFeed;
const refused = vi.fn();

beforeEach(() => {
  vi.useFakeTimers();
  [looks, heard] = [0, []];
  answer = () => ({ branch: "branch_1", touchedAt: 1, turnCount: 1, title: null });
  const read = async (): Promise<object> => {
    looks += 1;
    return { chat: answer() };
  };
  const client = { chats: { open: () => ({ read }) } } as unknown as Client;
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

describe("the feed of a shared chat", () => {
  it("emits a change when the chat changes, and only then", async () => {
    await vi.advanceTimersByTimeAsync(60_000);
    expect([heard, feed.connection.value]).toEqual([[], "live"]);
    answer = () => ({ branch: "branch_1", touchedAt: 2, turnCount: 2, title: null });
    await vi.advanceTimersByTimeAsync(15_000);
    expect(heard).toEqual(["chat.changed"]);
  });

  it("is polled less often over time, and more often during a turn", async () => {
    await vi.advanceTimersByTimeAsync(120_000);
    const before = looks;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(looks - before).toBeLessThan(6);
    answer = () => ({ branch: "branch_1", touchedAt: 1, turnCount: 1, title: null, isRunning: true });
    await vi.advanceTimersByTimeAsync(15_000);
    const talking = looks;
    await vi.advanceTimersByTimeAsync(30_000);
    expect(looks - talking).toBeGreaterThan(8);
  });

  it("is not polled while hidden", async () => {
    await vi.advanceTimersByTimeAsync(1_000);
    isHidden(true);
    const before = looks;
    await vi.advanceTimersByTimeAsync(120_000);
    expect(looks).toBe(before);
    isHidden(false);
    await vi.advanceTimersByTimeAsync(0);
    expect(looks).toBe(before + 1);
  });

  it("reports a deleted chat once, and revoked access", async () => {
    await vi.advanceTimersByTimeAsync(1_000);
    answer = () => {
      throw new errors.ConversationDeleted("conversation_deleted", "Gone.");
    };
    await vi.advanceTimersByTimeAsync(60_000);
    expect([heard, refused.mock.calls.length]).toEqual([["chat.changed"], 0]);
    answer = () => {
      throw new errors.NotAdmitted("token_revoked", "No.", { status: 401 });
    };
    await vi.advanceTimersByTimeAsync(15_000);
    expect(refused).toHaveBeenCalled();
    expect(feed.connection.value).toBe("lost");
  });
});
