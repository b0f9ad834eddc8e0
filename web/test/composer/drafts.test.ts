import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Drafts, NEW_CHAT, type DraftLimits } from "../../src/composer/drafts";
import { MemoryStorage, STORAGE_PREFIX } from "../../src/browser/storage";
import { StorageScope } from "../../src/session/storage-scope";

const CHAT = "conv_1";

let memory: MemoryStorage;
let storage: StorageScope;
let opened: Drafts[];

beforeEach(() => {
  vi.useFakeTimers();
  memory = new MemoryStorage();
  storage = new StorageScope("own", memory);
  opened = [];
});

afterEach(() => {
  for (const each of opened) each.close();
  vi.useRealTimers();
});

function open(bounds?: DraftLimits): Drafts {
  const drafts = new Drafts(storage, bounds);
  opened.push(drafts);
  return drafts;
}

/** What a browser tells the other tabs of. */
function tell(name: string, newValue: string | null): void {
  dispatchEvent(Object.assign(new Event("storage"), { key: `${STORAGE_PREFIX}own:${name}`, newValue }));
}

describe("drafts", () => {
  it("are there for the next page once some time has passed, however fast somebody types", () => {
    const setItem = vi.spyOn(memory, "setItem");
    const drafts = open();
    for (const text of ["H", "He", "Hel", "Hell", "Hello"]) drafts.write(CHAT, text);
    expect(setItem).not.toHaveBeenCalled();
    vi.advanceTimersByTime(300);
    expect(setItem).toHaveBeenCalledTimes(1);
    expect(open().read(CHAT)).toBe("Hello");
  });

  it("are read as they were written, also before they are kept", () => {
    const drafts = open();
    drafts.write(CHAT, "  both ends \n");
    expect(drafts.read(CHAT)).toBe("  both ends \n");
    drafts.flush();
    expect(open().read(CHAT)).toBe("  both ends \n");
  });

  it.each(["pagehide", "visibilitychange"])("are written down at %s", (type) => {
    open().write(CHAT, "almost lost");
    (type === "pagehide" ? globalThis : document).dispatchEvent(new Event(type));
    expect(open().read(CHAT)).toBe("almost lost");
  });

  it("leave nothing behind when they are empty", () => {
    const drafts = open();
    drafts.writeNow(CHAT, "text");
    drafts.writeNow(CHAT, "");
    expect(storage.names()).toEqual([]);
  });

  it("give way to newer ones when there are too many", () => {
    const drafts = open({ drafts: 2, characters: 100 });
    for (const place of ["a", "b", "c"]) drafts.writeNow(place, place);
    expect(["a", "b", "c"].map((place) => drafts.read(place))).toEqual(["", "b", "c"]);
  });

  it("give way to newer ones when they are too long together", () => {
    const drafts = open({ drafts: 9, characters: 10 });
    drafts.writeNow("a", "12345");
    drafts.writeNow("b", "12345");
    drafts.writeNow("a", "1234567");
    expect([drafts.read("a"), drafts.read("b")]).toEqual(["1234567", ""]);
  });

  it("are not kept at all where one is too long by itself, and the others stay", () => {
    const drafts = open({ drafts: 9, characters: 10 });
    drafts.writeNow("a", "12345");
    expect(drafts.writeNow("b", "12345678901")).toBe(false);
    expect([drafts.read("a"), drafts.read("b")]).toEqual(["12345", ""]);
  });

  it("give way to newer ones when the browser has no more room", () => {
    const drafts = open();
    drafts.writeNow("a", "old");
    const setItem = memory.setItem.bind(memory);
    vi.spyOn(memory, "setItem").mockImplementation((name, value) => {
      if (memory.length > 0) throw new DOMException("full", "QuotaExceededError");
      setItem(name, value);
    });
    expect(drafts.writeNow("b", "new")).toBe(true);
    expect([drafts.read("a"), drafts.read("b")]).toEqual(["", "new"]);
  });

  it("say so when there is no room even then, and the others stay", () => {
    const drafts = open();
    for (const place of ["a", "b"]) drafts.writeNow(place, "short");
    const setItem = memory.setItem.bind(memory);
    vi.spyOn(memory, "setItem").mockImplementation((name, value) => {
      if (value.includes("long")) throw new DOMException("full", "QuotaExceededError");
      setItem(name, value);
    });
    expect(drafts.writeNow("c", "too long")).toBe(false);
    expect(["a", "b", "c"].map((place) => open().read(place))).toEqual(["short", "short", ""]);
  });

  it("are told to who listens, when another tab writes or empties them", () => {
    const heard: string[] = [];
    const unlisten = open().listen(CHAT, (text) => heard.push(text));
    tell(`draft:${CHAT}`, JSON.stringify({ text: "there", at: 1, by: "other" }));
    tell(`draft:conv_2`, JSON.stringify({ text: "elsewhere", at: 1, by: "other" }));
    tell(`draft:${CHAT}`, JSON.stringify({ text: "", at: 2, by: "other" }));
    unlisten();
    tell(`draft:${CHAT}`, JSON.stringify({ text: "later", at: 3, by: "other" }));
    expect(heard).toEqual(["there", ""]);
  });

  it("tell other tabs when they are emptied, and not when they only find no room", () => {
    const written: string[] = [];
    const setItem = memory.setItem.bind(memory);
    vi.spyOn(memory, "setItem").mockImplementation((name, value) => {
      written.push((JSON.parse(value) as { text: string }).text);
      setItem(name, value);
    });
    const drafts = open({ drafts: 1, characters: 100 });
    drafts.writeNow("a", "first");
    drafts.writeNow("b", "second");
    drafts.writeNow("b", "");
    expect(written).toEqual(["first", "second", ""]);
  });

  it("of the one who types win over what another tab wrote meanwhile", () => {
    const heard: string[] = [];
    const drafts = open();
    drafts.listen(CHAT, (text) => heard.push(text));
    drafts.write(CHAT, "mine");
    tell(`draft:${CHAT}`, JSON.stringify({ text: "theirs", at: 1, by: "other" }));
    drafts.flush();
    expect(heard).toEqual([]);
    expect(open().read(CHAT)).toBe("mine");
  });

  it("for a new chat in another tab stay when this tab has sent its own", () => {
    const here = open();
    here.writeNow(NEW_CHAT, "here");
    const there = open();
    there.writeNow(NEW_CHAT, "there");
    here.writeNow(NEW_CHAT, "");
    expect(open().read(NEW_CHAT)).toBe("there");
  });

  it("for a new chat that were there before a reload go when they are sent or taken away after it", () => {
    open().writeNow(NEW_CHAT, "before");
    const after = open();
    expect(after.open(NEW_CHAT)).toBe("before");
    after.writeNow(NEW_CHAT, "");
    expect(open().read(NEW_CHAT)).toBe("");
  });

  it("are never written once whose they were is gone", () => {
    const drafts = open();
    drafts.write(CHAT, "secret");
    drafts.close();
    vi.advanceTimersByTime(1_000);
    expect(drafts.writeNow(CHAT, "secret")).toBe(false);
    drafts.write(CHAT, "secret");
    vi.advanceTimersByTime(1_000);
    expect(memory.length).toBe(0);
  });

  it("are nothing where something else is written in their place", () => {
    storage.set(`draft:${CHAT}`, "{");
    expect(open().read(CHAT)).toBe("");
  });
});
