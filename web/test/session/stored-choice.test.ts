import { describe, expect, it } from "vitest";
import { MemoryStorage, STORAGE_PREFIX } from "../../src/browser/storage";
import { StorageScope } from "../../src/session/storage-scope";
import { StoredChoice } from "../../src/session/stored-choice";

const SIZES = ["medium", "small", "large"] as const;

function changeElsewhere(storage: StorageScope, value: string | null): void {
  storage.set("size", value);
  dispatchEvent(new StorageEvent("storage", { key: `${STORAGE_PREFIX}own:size` }));
}

describe("a stored choice", () => {
  it("is the first value until another is chosen, and after an unknown one", () => {
    const storage = new StorageScope("own", new MemoryStorage());
    const choice = new StoredChoice(storage, "size", SIZES);
    expect(choice.value).toBe("medium");
    choice.choose("large");
    expect(new StoredChoice(storage, "size", SIZES).value).toBe("large");
    choice.choose("medium");
    expect(storage.names()).toEqual([]);
    storage.set("size", "enormous");
    expect(new StoredChoice(storage, "size", SIZES).value).toBe("medium");
  });

  it("follows other tabs until it or its scope is closed", () => {
    const storage = new StorageScope("own", new MemoryStorage());
    const [choice, closed] = [new StoredChoice(storage, "size", SIZES), new StoredChoice(storage, "size", SIZES)];
    closed.close();
    changeElsewhere(storage, "large");
    expect([choice.value, closed.value]).toEqual(["large", "medium"]);
    changeElsewhere(storage, null);
    expect(choice.value).toBe("medium");
    choice.choose("small");
    storage.close();
    dispatchEvent(new StorageEvent("storage", { key: null }));
    expect(choice.value).toBe("small");
  });

  it("that is fixed holds in its tab until the user chooses there", () => {
    const storage = new StorageScope("own", new MemoryStorage());
    const choice = new StoredChoice(storage, "size", SIZES, "small");
    changeElsewhere(storage, "large");
    expect(choice.value).toBe("small");
    choice.choose("large");
    expect([choice.value, storage.get("size")]).toEqual(["large", "large"]);
  });
});
