import { signal } from "@preact/signals";
import { describe, expect, it, vi } from "vitest";
import { errors, type Stream, type TurnEvent, type TurnStream } from "turnledger";
import { TurnReader, type TurnOutcome, type TurnSource } from "../../src/thread/turn-reader";
import { PendingTurn } from "../../src/thread/pending-turn";
import { delta, finished, MadeUpStream, rest, STARTED } from "./fakes";

class Scene {
  readonly isShown = signal(true);
  readonly before = signal(0);
  readonly ending = new AbortController();
  readonly withdrawal = new AbortController();
  readonly asked: MadeUpStream[] = [];
  readonly read: { readonly turn: string; readonly after: number; readonly stream: MadeUpStream }[] = [];
  readonly pending: PendingTurn;
  outcome: TurnOutcome | null = null;

  constructor(isLocal = true) {
    this.pending = new PendingTurn({ name: "a", isLocal, input: [], turnId: isLocal ? null : "turn_1" });
    const request = (): TurnStream => {
      this.asked.push(new MadeUpStream());
      return this.asked.at(-1) as unknown as TurnStream;
    };
    const source: TurnSource = {
      ...(isLocal && { request }),
      read: (turn, after) => {
        const stream = new MadeUpStream();
        this.read.push({ turn, after, stream });
        return stream as unknown as Stream<TurnEvent>;
      },
    };
    const reader = new TurnReader(this.isShown, () => this.before.value, this.ending.signal);
    void reader.follow(this.pending, source, this.withdrawal.signal).then((outcome) => (this.outcome = outcome));
  }

  static async begun(isLocal = true): Promise<Scene> {
    const scene = new Scene(isLocal);
    await rest();
    return scene;
  }

  /** The server takes what was asked for last, and tells this. */
  async take(turn: string, ...events: TurnEvent[]): Promise<void> {
    const stream = this.asked.at(-1) as MadeUpStream;
    stream.turnId = turn;
    stream.tell(...events);
    await rest();
  }

  /** The turn's events, as they are read. */
  async tell(...events: TurnEvent[]): Promise<void> {
    this.read[0]?.stream.tell(...events);
    await rest();
  }

  async show(isShown: boolean): Promise<void> {
    this.isShown.value = isShown;
    await rest();
  }
}

const lost = (): Error => new errors.ServerUnavailable("server_unavailable", "Nobody there.", { isRetryable: true });

describe("a local turn", () => {
  it("is followed to its end", async () => {
    const scene = await Scene.begun();
    await scene.take("turn_1", STARTED, delta(2, "Hello"), finished(3));
    expect(scene.outcome).toEqual({ kind: "committed" });
    expect([scene.pending.text.value, scene.pending.turnId.value]).toEqual(["Hello", "turn_1"]);
  });

  it("is released while hidden, and continued after the last event", async () => {
    const scene = await Scene.begun();
    await scene.take("turn_1", STARTED, delta(2, "Hel"));
    await scene.show(false);
    expect([scene.asked[0]?.isClosed, scene.read.length]).toEqual([true, 0]);
    await scene.show(true);
    expect(scene.read[0]).toMatchObject({ turn: "turn_1", after: 2 });
    await scene.tell(delta(3, "lo"), finished(4));
    expect([scene.pending.text.value, scene.outcome?.kind]).toEqual(["Hello", "committed"]);
  });

  it("is held until a server has accepted it, also while hidden", async () => {
    const scene = new Scene();
    await scene.show(false);
    expect(scene.asked[0]?.isClosed).toBe(false);
  });

  it("is read to its end while hidden, once a change reports its end", async () => {
    const scene = await Scene.begun();
    await scene.take("turn_1", STARTED);
    await scene.show(false);
    scene.pending.isOver.value = true;
    await rest();
    await scene.tell(delta(2, "Hello"), finished(3));
    expect(scene.outcome).toEqual({ kind: "committed" });
  });

  it("is not held while it is far back in the queue", async () => {
    const scene = new Scene();
    scene.before.value = 1;
    await rest();
    await scene.take("turn_1");
    scene.pending.identify("turn_1");
    scene.pending.state.value = "queued";
    await rest();
    expect(scene.asked[0]?.isClosed).toBe(true);
    scene.before.value = 0;
    await rest();
    expect(scene.read.length).toBe(1);
  });

  it("is requested again if its process died while it was hidden", async () => {
    const scene = await Scene.begun();
    await scene.take("turn_1", STARTED, delta(2, "This never"));
    await scene.show(false);
    await scene.show(true);
    await scene.tell(finished(3, "failed", "process_died"));
    expect([scene.asked.length, scene.outcome]).toEqual([2, null]);
    await scene.take("turn_2", STARTED, delta(2, "This"), finished(3));
    expect([scene.pending.text.value, scene.pending.isRestarted.value]).toEqual(["This", true]);
  });

  it("is not requested again if the model failed", async () => {
    const scene = await Scene.begun();
    await scene.take("turn_1", STARTED, finished(2, "failed", "model_refused"));
    expect(scene.outcome).toMatchObject({ kind: "failed", problem: { code: "model_refused" } });
    expect(scene.asked.length).toBe(1);
  });

  it("waits for a lost connection, and continues", async () => {
    vi.useFakeTimers();
    try {
      const scene = await Scene.begun();
      await scene.take("turn_1", STARTED, delta(2, "Hel"));
      scene.asked[0]?.fail(lost());
      await rest();
      expect([scene.pending.isOffline.value, scene.outcome, scene.read.length]).toEqual([true, null, 0]);
      await vi.advanceTimersByTimeAsync(5_000);
      await scene.tell(delta(3, "lo"), finished(4));
      expect([scene.pending.text.value, scene.pending.isOffline.value]).toEqual(["Hello", false]);
    } finally {
      vi.useRealTimers();
    }
  });

  it("is requested again if it was withdrawn from the queue or waited too long", async () => {
    const scene = await Scene.begun();
    scene.asked[0]?.fail(new errors.WaitEnded("wait_ended", "Too long."));
    await rest();
    expect(scene.asked.length).toBe(2);
    scene.asked[1]?.end();
    await rest();
    expect([scene.asked.length, scene.outcome]).toEqual([3, null]);
  });

  it("is requested a limited number of times", async () => {
    const scene = new Scene();
    for (let time = 0; time < 30 && !scene.outcome; time += 1) {
      await rest();
      scene.asked.at(-1)?.fail(new errors.WaitEnded("wait_ended", "Too long."));
      await rest();
    }
    expect(scene.outcome).not.toBeNull();
    expect(scene.asked.length).toBeLessThan(20);
  });

  it("ends when it is withdrawn", async () => {
    const scene = await Scene.begun();
    scene.withdrawal.abort();
    await rest();
    expect([scene.asked[0]?.isClosed, scene.outcome?.kind]).toEqual([true, "gone"]);
  });

  it("fails with the server's refusal", async () => {
    const scene = await Scene.begun();
    const refused = new errors.QueueFull("queue_full", "Too many.");
    scene.asked[0]?.fail(refused);
    await rest();
    expect(scene.outcome).toEqual({ kind: "failed", problem: refused });
  });
});

describe("a turn of another tab", () => {
  it("is read, and never requested", async () => {
    const scene = await Scene.begun(false);
    expect(scene.read[0]).toMatchObject({ turn: "turn_1", after: 0 });
    await scene.tell(STARTED, finished(2, "failed", "process_died"));
    expect(scene.outcome).toMatchObject({ kind: "failed", problem: { code: "process_died" } });
  });

  it("is gone if it has no events", async () => {
    const scene = await Scene.begun(false);
    scene.read[0]?.stream.end();
    await rest();
    expect(scene.outcome).toEqual({ kind: "gone" });
  });

  it("reports that a user stopped it", async () => {
    const scene = await Scene.begun(false);
    await scene.tell(STARTED, finished(2, "discarded"));
    expect(scene.outcome).toMatchObject({ kind: "failed", problem: { code: "turn_stopped" } });
  });
});
