import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Credential } from "../../src/session/credential";

const [ONE, OTHER] = ["tlt_one-111111", "tlt_two-222222"];
const TOKEN = "turnledger page:own:token";

let made: Credential[] = [];
const credential = (changed = (): void => {}, place = "own"): Credential => {
  const each = new Credential(place, changed, localStorage);
  made.push(each);
  return each;
};
/** What a storage tells its other tabs. */
const told = (key: string | null): boolean =>
  dispatchEvent(Object.assign(new Event("storage"), { key, storageArea: localStorage }));

beforeEach(() => localStorage.clear());
afterEach(() => {
  for (const each of made) each.close();
  made = [];
});

describe("a replaced token", () => {
  it("leaves no data, and other data stays", () => {
    localStorage.setItem("somebody else's", "stays");
    localStorage.setItem("turnledger page:link-abc.def:model", "stays");
    const here = credential();
    here.replace(ONE);
    here.storage().set("draft", "Dear");
    sessionStorage.setItem(`turnledger page:${here.storage().name}:seen`, "1");
    here.replace(OTHER);
    expect(here.token).toBe(OTHER);
    const others = ["turnledger page:link-abc.def:model", "somebody else's"];
    expect(Object.keys(localStorage).sort()).toEqual([TOKEN, ...others].sort());
    expect(sessionStorage.length).toBe(0);
    here.replace(null);
    expect([here.token, localStorage.getItem(TOKEN)]).toEqual([null, null]);
  });

  it("has its own storage scope", () => {
    const here = credential();
    here.replace(ONE);
    const former = here.storage();
    here.replace(OTHER);
    former.set("draft", "written late");
    expect(here.storage().get("draft")).toBe(null);
  });

  it("is noticed by other tabs through the storage", () => {
    localStorage.setItem(TOKEN, ONE);
    const changed = vi.fn();
    const there = credential(changed);
    there.storage().set("draft", "Dear");
    localStorage.setItem(TOKEN, OTHER);
    told(TOKEN);
    expect(changed).toHaveBeenCalledTimes(1);
    expect(Object.keys(localStorage)).toEqual([TOKEN]);
    told(TOKEN);
    expect(changed).toHaveBeenCalledTimes(1);
    localStorage.clear();
    told(null);
    expect(changed).toHaveBeenCalledTimes(2);
  });

  it("is announced to other tabs by its fingerprint only", async () => {
    localStorage.setItem(TOKEN, ONE);
    const heard: unknown[] = [];
    const channel = new BroadcastChannel("turnledger credential own");
    const hears = new Promise<void>((resolve) => {
      channel.onmessage = (event) => {
        heard.push(event.data);
        resolve();
      };
    });
    credential().replace(OTHER);
    await hears;
    expect(heard).toEqual([{ fingerprint: "222222" }]);
    channel.close();
  });

  it("is noticed by a page from the back/forward cache", () => {
    localStorage.setItem(TOKEN, ONE);
    const changed = vi.fn();
    credential(changed);
    localStorage.setItem(TOKEN, OTHER);
    dispatchEvent(new Event("pageshow"));
    expect(changed).toHaveBeenCalledTimes(1);
  });

  it("removes data that a late tab writes", () => {
    localStorage.setItem(TOKEN, ONE);
    const here = credential();
    const former = here.storage();
    here.replace(OTHER);
    former.set("draft", "written late");
    told(`turnledger page:${former.name}:draft`);
    expect(Object.keys(localStorage)).toEqual([TOKEN]);
  });

  it("is used by this page if the storage is full", () => {
    localStorage.setItem(TOKEN, ONE);
    const full = {
      get length() {
        return localStorage.length;
      },
      key: (place: number) => localStorage.key(place),
      getItem: (name: string) => localStorage.getItem(name),
      removeItem: (name: string) => localStorage.removeItem(name),
      setItem: () => {
        throw new Error("full");
      },
    };
    const here = new Credential("own", () => {}, full);
    made.push(here);
    here.replace(OTHER);
    expect([here.token, localStorage.getItem(TOKEN)]).toEqual([OTHER, null]);
  });
});
