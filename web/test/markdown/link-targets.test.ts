import { describe, expect, it } from "vitest";
import { externalUrl, disguisedHost } from "../../src/markdown/link-targets";

describe("an address", () => {
  it.each(["https://a.example/b?c#d", "HTTP://A.example", "mailto:a@b.example", "https:a.example"])(
    "is external: %s",
    (address) => {
      expect(externalUrl(address)).not.toBeNull();
    },
  );

  it.each([
    "javascript:alert(1)",
    " javascript:alert(1)",
    "java\nscript:alert(1)",
    "vbscript:x",
    "data:text/html,x",
    "blob:https://a.example/b",
    "file:///etc/passwd",
    "#new",
    "/api/chats",
    "//a.example",
    "a.example",
    "https://",
    "",
    "ftp://a.example",
    "tel:123",
  ])("is not external: %j", (address) => expect(externalUrl(address)).toBeNull());
});

describe("a link's text", () => {
  it.each([
    ["https://a.example/x", "https://a.example/y"],
    ["a.example", "https://www.a.example/"],
    ["A.EXAMPLE/path", "https://a.example/"],
    ["some words", "https://a.example/"],
    ["e.g. this", "https://a.example/"],
    ["a@b.example", "mailto:a@b.example"],
    ["write to me", "mailto:a@b.example"],
    ["xn--mnchen-3ya.example", "https://xn--mnchen-3ya.example/"],
    ["ａ.example", "https://a.example/"],
    ["see https://a.example/x", "https://a.example/"],
    ["3.14", "https://a.example"],
  ])("matches the host: %s", (words, address) => expect(disguisedHost(words, new URL(address))).toBeNull());

  it.each([
    ["https://a.example", "https://b.example/", "b.example"],
    ["a.example", "https://a.example.b.example/", "a.example.b.example"],
    ["a.example/login", "https://b.example/", "b.example"],
    ["https://a.example", "https://a.example:8080/", "a.example:8080"],
    ["http://a.example@b.example", "https://c.example/", "c.example"],
    ["sign in", "https://a.example@b.example/", "b.example"],
    ["a@b.example", "https://c.example/", "c.example"],
    ["a@b.example", "mailto:c@d.example", "c@d.example"],
    // It could be a place in Moldova.
    ["README.md", "https://a.example/", "a.example"],
    ["аpple.example", "https://apple.example/", "apple.example"],
    ["a\u2024example", "https://b.example/", "b.example"],
    ["a。example", "https://b.example/", "b.example"],
    ["a\ua4f8example", "https://b.example/", "b.example"],
    ["ａ．ｅｘａｍｐｌｅ", "https://b.example/", "b.example"],
    ["ｈｔｔｐｓ：／／ａ", "https://b.example/", "b.example"],
    ["https\ua789//a.example", "https://b.example/", "b.example"],
    ["a.example\u2215login", "https://b.example/", "b.example"],
    ["Sign in at https://a.example/", "https://b.example/", "b.example"],
    ["a＠b.example", "mailto:c@d.example", "c@d.example"],
    // A browser shows such a host as its own letters, which may look like others.
    ["аpple.example", "https://xn--pple-43d.example/", "xn--pple-43d.example"],
    ["münchen.example", "https://xn--mnchen-3ya.example/", "xn--mnchen-3ya.example"],
    ["sign in", "https://xn--pple-43d.example/", "xn--pple-43d.example"],
  ])("disguises the host: %s", (words, address, host) => expect(disguisedHost(words, new URL(address))).toBe(host));
});
