import { signal } from "@preact/signals";
import type { Model, Turn } from "turnledger";
import { beforeEach, describe, expect, it } from "vitest";
import { Experiments, type ExperimentContext, type ExperimentThread } from "../../src/first-run/experiments";
import { MemoryStorage } from "../../src/browser/storage";
import { StorageScope } from "../../src/session/storage-scope";

const DEMO: Model = { id: "demo", ownedBy: "turnledger" };
const REAL: Model = { id: "llama", ownedBy: "somebody" };

function newcomer(storage: StorageScope) {
  const model = signal<string | null>("demo");
  const takenBack: string[] = [];
  const takeBack = (_: ExperimentThread, text: string): void => void takenBack.push(text);
  return { storage, models: signal([DEMO]), model, hasChats: signal<boolean | null>(false), takeBack, takenBack };
}

/** A thread whose turns end as a test says. */
function thread(id: string | null = "conv_1") {
  let end = (): void => {};
  const made = {
    id: signal(id),
    turns: signal<readonly Turn[]>([]),
    pending: signal<readonly { isLocal: boolean }[]>([]),
    failed: signal<object | null>(null),
    sent: [] as string[],
    send(text: string): Promise<void> {
      made.sent.push(text);
      return new Promise((resolve) => (end = resolve));
    },
    async ends(how: () => void = () => {}): Promise<void> {
      how();
      end();
      await Promise.resolve();
    },
  };
  return made satisfies ExperimentThread;
}

const ended = (kind: Turn["kind"]): Turn => ({ kind }) as Turn;

describe("experiments", () => {
  let storage: StorageScope;
  let who: ExperimentContext & ReturnType<typeof newcomer>;
  beforeEach(() => {
    storage = new StorageScope("own", new MemoryStorage());
    who = newcomer(storage);
  });

  it("are shown to users with the demo model and no chats", () => {
    const experiments = new Experiments(who);
    expect(experiments.isOpen.value).toBe(true);
    who.hasChats.value = true;
    expect(experiments.isOpen.value).toBe(false);
    who.hasChats.value = null;
    expect(experiments.isOpen.value).toBe(false);
    who.hasChats.value = false;
    who.models.value = [REAL];
    who.model.value = "llama";
    expect(experiments.isOpen.value).toBe(false);
  });

  it("stay open once one was tried, also with a chat and after a reload", () => {
    const experiments = new Experiments(who);
    void experiments.start("vanish", thread());
    who.hasChats.value = true;
    expect(experiments.isOpen.value).toBe(true);
    expect(new Experiments(who).isOpen.value).toBe(true);
  });

  it("report a vanished turn", async () => {
    const experiments = new Experiments(who);
    const tried = thread();
    const trying = experiments.start("vanish", tried);
    expect(tried.sent).toEqual(["/slow /fail after 5"]);
    expect(experiments.step.value).toEqual({ name: "vanish", at: "running" });
    await tried.ends(() => (tried.failed.value = {}));
    await trying;
    expect(experiments.step.value).toEqual({ name: "vanish", at: "done" });
    expect(who.takenBack).toEqual(tried.sent);
    expect([...new Experiments(who).tried.value]).toEqual(["vanish"]);
  });

  it.each([
    ["done", () => ({ turns: [ended("interrupted")], failed: null })],
    ["missed", () => ({ turns: [ended("completed")], failed: null })],
    ["early", () => ({ turns: [], failed: {} })],
  ] as const)("report the outcome of a stop: %s", async (at, outcome) => {
    const experiments = new Experiments(who);
    const tried = thread();
    const trying = experiments.start("stop", tried);
    await tried.ends(() => {
      tried.turns.value = outcome().turns;
      tried.failed.value = outcome().failed;
    });
    await trying;
    expect(experiments.step.value).toEqual({ name: "stop", at });
    expect(experiments.tried.value.has("stop")).toBe(at === "done");
  });

  it("create a chat for two tabs, and report a message from the other tab", async () => {
    const experiments = new Experiments(who);
    const tried = thread(null);
    const trying = experiments.start("tabs", tried);
    expect(experiments.step.value).toEqual({ name: "tabs", at: "greeting" });
    await tried.ends(() => (tried.id.value = "conv_1"));
    await trying;
    expect(experiments.step.value).toEqual({ name: "tabs", at: "ready" });
    tried.pending.value = [{ isLocal: true }];
    expect(experiments.step.value).toEqual({ name: "tabs", at: "ready" });
    tried.pending.value = [{ isLocal: false }];
    expect(experiments.step.value).toEqual({ name: "tabs", at: "done" });
  });

  it("report a message from the other tab that was answered before this tab saw it run", async () => {
    const experiments = new Experiments(who);
    const tried = thread("conv_1");
    await experiments.start("tabs", tried);
    tried.pending.value = [{ isLocal: true }];
    tried.turns.value = [...tried.turns.value, ended("completed")];
    tried.pending.value = [];
    expect(experiments.step.value).toEqual({ name: "tabs", at: "ready" });
    tried.turns.value = [...tried.turns.value, ended("completed")];
    expect(experiments.step.value).toEqual({ name: "tabs", at: "done" });
  });

  it("recognize the tab that was opened for them", async () => {
    await new Experiments(who).start("tabs", thread());
    expect(new Experiments(who, true).step.value).toEqual({ name: "tabs", at: "second" });
    expect(new Experiments(who, false).step.value).toBe(null);
  });

  it("report nothing of one after another was started", async () => {
    const experiments = new Experiments(who);
    const [one, other] = [thread(), thread()];
    const first = experiments.start("stop", one);
    void experiments.start("vanish", other);
    await one.ends();
    await first;
    expect(experiments.step.value).toEqual({ name: "vanish", at: "running" });
  });

  it("end when closed or when all were tried", () => {
    const experiments = new Experiments(who);
    experiments.close();
    expect(experiments.isOpen.value).toBe(false);
    expect(new Experiments(who).isOpen.value).toBe(false);
    storage.set("first-run", "stop");
    expect(new Experiments(who).isOpen.value).toBe(true);
    for (const name of ["vanish", "stop", "tabs"]) storage.set(`tried ${name}`, "1");
    expect(new Experiments(who).isOpen.value).toBe(false);
  });
});
