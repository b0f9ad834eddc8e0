import { afterEach, describe, expect, it, vi } from "vitest";
import { MemoryStorage } from "../../src/browser/storage";
import { StorageScope } from "../../src/session/storage-scope";
import { addressOptions } from "../../src/view/address-options";
import { Theme } from "../../src/view/theme";

const shown = (): string | undefined => document.documentElement.dataset["theme"];

afterEach(() => delete document.documentElement.dataset["theme"]);

describe("the theme", () => {
  it("is the system's until the user chooses one", () => {
    const storage = new StorageScope("own", new MemoryStorage());
    const theme = new Theme(storage, null);
    expect([theme.name.value, shown()]).toEqual(["system", undefined]);
    theme.choose("dark");
    expect(shown()).toBe("dark");
    expect(new Theme(storage, null).name.value).toBe("dark");
    theme.choose("system");
    expect([shown(), storage.names()]).toEqual([undefined, []]);
  });

  it("is the one in the address at first", () => {
    const storage = new StorageScope("own", new MemoryStorage());
    storage.set("theme", "dark");
    new Theme(storage, addressOptions("?theme=light").theme);
    expect(shown()).toBe("light");
  });

  it("takes colours and the corner radius from the address of an embedded page, if they are valid", () => {
    vi.stubGlobal("CSS", { supports: (_: string, value: string) => value !== "blurple" });
    const given = "--accent=rebeccapurple&--radius=2px&--paper=blurple&--ink=var(--paper)&--on-accent=inherit&--focus=red";
    const { variables } = addressOptions(`?embed=1&${given}`);
    expect([...variables]).toEqual([
      ["--accent", "rebeccapurple"],
      ["--radius", "2px"],
    ]);
    expect(addressOptions(`?${given}`).variables.size).toBe(0);
    new Theme(new StorageScope("own", new MemoryStorage()), null, variables);
    expect(document.documentElement.style.getPropertyValue("--accent")).toBe("rebeccapurple");
    vi.unstubAllGlobals();
  });

  it("ignores unknown names", () => {
    expect(addressOptions("?theme=pink").theme).toBe(null);
    const storage = new StorageScope("own", new MemoryStorage());
    storage.set("theme", "pink");
    expect(new Theme(storage, null).name.value).toBe("system");
  });
});
