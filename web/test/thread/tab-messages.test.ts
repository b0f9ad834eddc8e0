import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Tellings, type Telling } from "../../src/thread/tab-messages";

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

const TOLD: Telling = { chat: "conv_1", turn: "turn_1", name: "a", input: [], replaces: null };

describe("tabs", () => {
  beforeEach(() => vi.stubGlobal("BroadcastChannel", Channel));
  afterEach(() => {
    vi.unstubAllGlobals();
    Channel.open = [];
  });

  it("hear what the others ask for, of the same credential only", () => {
    const heard: Telling[] = [];
    const one = new Tellings("own", () => {}, () => []);
    const other = new Tellings("own", (telling) => heard.push(telling), () => []);
    const stranger = new Tellings("link", (telling) => heard.push(telling), () => []);
    one.tell(TOLD);
    expect(heard).toEqual([TOLD]);
    expect([other.of("turn_1"), stranger.of("turn_1"), one.of("turn_1")]).toEqual([TOLD, undefined, undefined]);
  });

  it("that come later are told when they ask", () => {
    const one = new Tellings("own", () => {}, (chat) => (chat === "conv_1" ? [TOLD] : []));
    const other = new Tellings("own", () => {}, () => []);
    other.ask("conv_2");
    expect(other.of("turn_1")).toBeUndefined();
    other.ask("conv_1");
    expect(other.of("turn_1")).toEqual(TOLD);
    one.close();
  });

  it("tell nobody where there are no channels", () => {
    vi.unstubAllGlobals();
    vi.stubGlobal("BroadcastChannel", undefined);
    Reflect.deleteProperty(globalThis, "BroadcastChannel");
    const alone = new Tellings("own", () => {}, () => []);
    expect(() => [alone.tell(TOLD), alone.ask("conv_1"), alone.close()]).not.toThrow();
  });

  it("tell nobody where a frame is denied them", () => {
    vi.stubGlobal("BroadcastChannel", function denied() {
      throw new DOMException("Denied.", "SecurityError");
    });
    const alone = new Tellings("own", () => {}, () => []);
    expect(() => [alone.tell(TOLD), alone.ask("conv_1"), alone.close()]).not.toThrow();
  });
});
