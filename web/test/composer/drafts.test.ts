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
  it("are stored after a pause, also during fast typing", () => {
    const setItem = vi.spyOn(memory, "setItem");
    const drafts = open();
    for (const text of ["H", "He", "Hel", "Hell", "Hello"]) drafts.write(CHAT, text);
    expect(setItem).not.toHaveBeenCalled();
    vi.advanceTimersByTime(300);
    expect(setItem).toHaveBeenCalledTimes(1);
    expect(open().read(CHAT)).toBe("Hello");
  });

  it("are read as written, also before they are stored", () => {
    const drafts = open();
    drafts.write(CHAT, "  both ends \n");
    expect(drafts.read(CHAT)).toBe("  both ends \n");
    drafts.flush();
    expect(open().read(CHAT)).toBe("  both ends \n");
  });

  it.each(["pagehide", "visibilitychange"])("are stored at %s", (type) => {
    open().write(CHAT, "almost lost");
    (type === "pagehide" ? globalThis : document).dispatchEvent(new Event(type));
    expect(open().read(CHAT)).toBe("almost lost");
  });

  it("leave no entry when empty", () => {
    const drafts = open();
    drafts.writeNow(CHAT, "text");
    drafts.writeNow(CHAT, "");
    expect(storage.names()).toEqual([]);
  });

  it("are removed for newer ones beyond the limit", () => {
    const drafts = open({ drafts: 2, characters: 100 });
    for (const place of ["a", "b", "c"]) drafts.writeNow(place, place);
    expect(["a", "b", "c"].map((place) => drafts.read(place))).toEqual(["", "b", "c"]);
  });

  it("are removed for newer ones beyond the total length", () => {
    const drafts = open({ drafts: 9, characters: 10 });
    drafts.writeNow("a", "12345");
    drafts.writeNow("b", "12345");
    drafts.writeNow("a", "1234567");
    expect([drafts.read("a"), drafts.read("b")]).toEqual(["1234567", ""]);
  });

  it("are not stored if too long, and the others stay", () => {
    const drafts = open({ drafts: 9, characters: 10 });
    drafts.writeNow("a", "12345");
    expect(drafts.writeNow("b", "12345678901")).toBe(false);
    expect([drafts.read("a"), drafts.read("b")]).toEqual(["12345", ""]);
  });

  it("are removed for newer ones if the storage is full", () => {
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

  it("report a full storage, and keep the others", () => {
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

  it("are reported to listeners when another tab writes or empties them", () => {
    const heard: string[] = [];
    const unlisten = open().listen(CHAT, (text) => heard.push(text));
    tell(`draft:${CHAT}`, JSON.stringify({ text: "there", at: 1, by: "other" }));
    tell(`draft:conv_2`, JSON.stringify({ text: "elsewhere", at: 1, by: "other" }));
    tell(`draft:${CHAT}`, JSON.stringify({ text: "", at: 2, by: "other" }));
    unlisten();
    tell(`draft:${CHAT}`, JSON.stringify({ text: "later", at: 3, by: "other" }));
    expect(heard).toEqual(["there", ""]);
  });

  it("are reported as emptied, but not for a full storage", () => {
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

  it("of the typing tab win over those of another tab", () => {
    const heard: string[] = [];
    const drafts = open();
    drafts.listen(CHAT, (text) => heard.push(text));
    drafts.write(CHAT, "mine");
    tell(`draft:${CHAT}`, JSON.stringify({ text: "theirs", at: 1, by: "other" }));
    drafts.flush();
    expect(heard).toEqual([]);
    expect(open().read(CHAT)).toBe("mine");
  });

  it("of another tab's new chat stay when this tab sends its own", () => {
    const here = open();
    here.writeNow(NEW_CHAT, "here");
    const there = open();
    there.writeNow(NEW_CHAT, "there");
    here.writeNow(NEW_CHAT, "");
    expect(open().read(NEW_CHAT)).toBe("there");
  });

  it("of a new chat from before a reload are removed when sent or emptied", () => {
    open().writeNow(NEW_CHAT, "before");
    const after = open();
    expect(after.open(NEW_CHAT)).toBe("before");
    after.writeNow(NEW_CHAT, "");
    expect(open().read(NEW_CHAT)).toBe("");
  });

  it("are never stored after they are closed", () => {
    const drafts = open();
    drafts.write(CHAT, "secret");
    drafts.close();
    vi.advanceTimersByTime(1_000);
    expect(drafts.writeNow(CHAT, "secret")).toBe(false);
    drafts.write(CHAT, "secret");
    vi.advanceTimersByTime(1_000);
    expect(memory.length).toBe(0);
  });

  it("are empty if the stored value is something else", () => {
    storage.set(`draft:${CHAT}`, "{");
    expect(open().read(CHAT)).toBe("");
  });
});
