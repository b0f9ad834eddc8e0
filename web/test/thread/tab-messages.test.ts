import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { TabMessages, type TabMessage } from "../../src/thread/tab-messages";

/** A channel that tells at once. */
class Channel extends EventTarget {
  static open: Channel[] = [];
  constructor(readonly name: string) {
    super();
    Channel.open.push(this);
  }
  postMessage(data: unknown): void {
    for (const other of Channel.open) {
      if (other !== this && other.name === this.name) other.dispatchEvent(new MessageEvent("message", { data }));
    }
  }
  close(): void {
    Channel.open = Channel.open.filter((each) => each !== this);
  }
}

const TOLD: TabMessage = { chat: "conv_1", turn: "turn_1", name: "a", input: [], replaces: null };

describe("tabs", () => {
  beforeEach(() => vi.stubGlobal("BroadcastChannel", Channel));
  afterEach(() => {
    vi.unstubAllGlobals();
    Channel.open = [];
  });

  it("receive the turns of other tabs with the same credential", () => {
    const heard: TabMessage[] = [];
    const one = new TabMessages("own", () => {}, () => []);
    const other = new TabMessages("own", (message) => heard.push(message), () => []);
    const stranger = new TabMessages("link", (message) => heard.push(message), () => []);
    one.post(TOLD);
    expect(heard).toEqual([TOLD]);
    expect([other.of("turn_1"), stranger.of("turn_1"), one.of("turn_1")]).toEqual([TOLD, undefined, undefined]);
  });

  it("that open later receive them on request", () => {
    const one = new TabMessages("own", () => {}, (chat) => (chat === "conv_1" ? [TOLD] : []));
    const other = new TabMessages("own", () => {}, () => []);
    other.requestAll("conv_2");
    expect(other.of("turn_1")).toBeUndefined();
    other.requestAll("conv_1");
    expect(other.of("turn_1")).toEqual(TOLD);
    one.close();
  });

  it("send nothing without channels", () => {
    vi.unstubAllGlobals();
    vi.stubGlobal("BroadcastChannel", undefined);
    Reflect.deleteProperty(globalThis, "BroadcastChannel");
    const alone = new TabMessages("own", () => {}, () => []);
    expect(() => [alone.post(TOLD), alone.requestAll("conv_1"), alone.close()]).not.toThrow();
  });

  it("send nothing where a frame is denied channels", () => {
    vi.stubGlobal("BroadcastChannel", function denied() {
      throw new DOMException("Denied.", "SecurityError");
    });
    const alone = new TabMessages("own", () => {}, () => []);
    expect(() => [alone.post(TOLD), alone.requestAll("conv_1"), alone.close()]).not.toThrow();
  });
});
