import { describe, expect, it } from "vitest";
import { Outbox } from "turnledger/outbox";
import { MemoryStorage } from "../../src/browser/storage";
import { belongsToSlot, belongsToScope, StorageScope, storageScopeName } from "../../src/session/storage-scope";

const MESSAGE = { idempotencyKey: "one", baseUrl: "http://here", body: "{}", headers: {} };

describe("a storage scope", () => {
  it("stores values under its own name", () => {
    const storage = new MemoryStorage();
    const [mine, other] = [new StorageScope("own.abc", storage), new StorageScope("own.abcd", storage)];
    expect(mine.set("draft conv_1", "Dear")).toBe(true);
    expect([mine.get("draft conv_1"), other.get("draft conv_1")]).toEqual(["Dear", null]);
    expect([mine.names("draft "), other.names()]).toEqual([["draft conv_1"], []]);
    mine.set("draft conv_1", null);
    expect(storage.length).toBe(0);
  });

  it("ignores reads and writes after it is closed", () => {
    const memory = new MemoryStorage();
    const storage = new StorageScope("own.abc", memory);
    storage.set("model", "demo");
    storage.close();
    expect([storage.isClosed, storage.set("draft", "late")]).toEqual([true, false]);
    expect([storage.get("model"), storage.names()]).toEqual([null, []]);
    expect(() => new Outbox(storage.backend, storage.sender).record(MESSAGE)).toThrow("No room");
    expect(memory.length).toBe(1);
  });

  it("reports that a full storage has stored nothing", () => {
    const full = Object.assign(new MemoryStorage(), {
      setItem: () => {
        throw new Error("full");
      },
    });
    expect(new StorageScope("own.abc", full).set("draft", "long")).toBe(false);
  });
});

describe("storage keys", () => {
  it("contain the slot and the scope", () => {
    const memory = new MemoryStorage();
    const name = storageScopeName("own", "abc");
    const storage = new StorageScope(name, memory);
    storage.set("model", "demo");
    new Outbox(storage.backend, storage.sender).record(MESSAGE);
    const names = [memory.key(0), memory.key(1)] as string[];
    expect(names.map((each) => belongsToSlot(each, "own"))).toEqual([true, true]);
    expect(names.map((each) => belongsToScope(each, name))).toEqual([true, true]);
    expect(names.map((each) => belongsToScope(each, storageScopeName("own", "abcd")))).toEqual([false, false]);
    expect(names.map((each) => belongsToSlot(each, "owner"))).toEqual([false, false]);
    expect(belongsToSlot("turnledger page:own:token", "own")).toBe(true);
    expect(belongsToSlot("somebody else's", "own")).toBe(false);
  });
});
