import { afterEach, describe, expect, it } from "vitest";
import { Memory, Realm } from "../../src/session/storage-scope";
import { asked } from "../../src/view/address-options";
import { Theme } from "../../src/view/theme";

const shown = (): string | undefined => document.documentElement.dataset["theme"];

afterEach(() => delete document.documentElement.dataset["theme"]);

describe("the theme", () => {
  it("is the system's until somebody chooses, and the chosen one from then on", () => {
    const realm = new Realm("own", new Memory());
    const theme = new Theme(realm, null);
    expect([theme.name.value, shown()]).toEqual(["system", undefined]);
    theme.choose("dark");
    expect(shown()).toBe("dark");
    expect(new Theme(realm, null).name.value).toBe("dark");
    theme.choose("system");
    expect([shown(), realm.names()]).toEqual([undefined, []]);
  });

  it("is what the address asks for at first", () => {
    const realm = new Realm("own", new Memory());
    realm.set("theme", "dark");
    new Theme(realm, asked("?theme=light").theme);
    expect(shown()).toBe("light");
  });

  it("is no other than those there are", () => {
    expect(asked("?theme=pink").theme).toBe(null);
    const realm = new Realm("own", new Memory());
    realm.set("theme", "pink");
    expect(new Theme(realm, null).name.value).toBe("system");
  });
});
