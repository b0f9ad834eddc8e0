import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Drafts, NEW, type DraftBounds } from "../../src/composer/drafts";
import { Memory, PREFIX, Realm } from "../../src/session/storage-scope";

const CHAT = "conv_1";

let memory: Memory;
let realm: Realm;
let opened: Drafts[];

beforeEach(() => {
  vi.useFakeTimers();
  memory = new Memory();
  realm = new Realm("own", memory);
  opened = [];
});

afterEach(() => {
  for (const each of opened) each.close();
  vi.useRealTimers();
});

function open(bounds?: DraftBounds): Drafts {
  const drafts = new Drafts(realm, bounds);
  opened.push(drafts);
  return drafts;
}

/** What a browser tells the other tabs of. */
function tell(name: string, newValue: string | null): void {
  dispatchEvent(Object.assign(new Event("storage"), { key: `${PREFIX}own:${name}`, newValue }));
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
    drafts.keep(CHAT, "text");
    drafts.keep(CHAT, "");
    expect(realm.names()).toEqual([]);
  });

  it("give way to newer ones when there are too many", () => {
    const drafts = open({ drafts: 2, characters: 100 });
    for (const place of ["a", "b", "c"]) drafts.keep(place, place);
    expect(["a", "b", "c"].map((place) => drafts.read(place))).toEqual(["", "b", "c"]);
  });

  it("give way to newer ones when they are too long together", () => {
    const drafts = open({ drafts: 9, characters: 10 });
    drafts.keep("a", "12345");
    drafts.keep("b", "12345");
    drafts.keep("a", "1234567");
    expect([drafts.read("a"), drafts.read("b")]).toEqual(["1234567", ""]);
  });

  it("are not kept at all where one is too long by itself, and the others stay", () => {
    const drafts = open({ drafts: 9, characters: 10 });
    drafts.keep("a", "12345");
    expect(drafts.keep("b", "12345678901")).toBe(false);
    expect([drafts.read("a"), drafts.read("b")]).toEqual(["12345", ""]);
  });

  it("give way to newer ones when the browser has no more room", () => {
    const drafts = open();
    drafts.keep("a", "old");
    const setItem = memory.setItem.bind(memory);
    vi.spyOn(memory, "setItem").mockImplementation((name, value) => {
      if (memory.length > 0) throw new DOMException("full", "QuotaExceededError");
      setItem(name, value);
    });
    expect(drafts.keep("b", "new")).toBe(true);
    expect([drafts.read("a"), drafts.read("b")]).toEqual(["", "new"]);
  });

  it("say so when there is no room even then, and the others stay", () => {
    const drafts = open();
    for (const place of ["a", "b"]) drafts.keep(place, "short");
    const setItem = memory.setItem.bind(memory);
    vi.spyOn(memory, "setItem").mockImplementation((name, value) => {
      if (value.includes("long")) throw new DOMException("full", "QuotaExceededError");
      setItem(name, value);
    });
    expect(drafts.keep("c", "too long")).toBe(false);
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
    drafts.keep("a", "first");
    drafts.keep("b", "second");
    drafts.keep("b", "");
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
    here.keep(NEW, "here");
    const there = open();
    there.keep(NEW, "there");
    here.keep(NEW, "");
    expect(open().read(NEW)).toBe("there");
  });

  it("for a new chat that were there before a reload go when they are sent or taken away after it", () => {
    open().keep(NEW, "before");
    const after = open();
    expect(after.open(NEW)).toBe("before");
    after.keep(NEW, "");
    expect(open().read(NEW)).toBe("");
  });

  it("are never written once whose they were is gone", () => {
    const drafts = open();
    drafts.write(CHAT, "secret");
    drafts.close();
    realm.wipe();
    vi.advanceTimersByTime(1_000);
    expect(drafts.keep(CHAT, "secret")).toBe(false);
    drafts.write(CHAT, "secret");
    vi.advanceTimersByTime(1_000);
    expect(memory.length).toBe(0);
  });

  it("are nothing where something else is written in their place", () => {
    realm.set(`draft:${CHAT}`, "{");
    expect(open().read(CHAT)).toBe("");
  });
});
