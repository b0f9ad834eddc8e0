import { describe, expect, it } from "vitest";
import { chatTitle, shortTitle } from "../../src/chats/chat-row";

describe("the title of a chat", () => {
  it("is cut where it stands within a sentence, and never within a character", () => {
    expect(shortTitle({ title: "Dinner" })).toBe("Dinner");
    expect(shortTitle({ title: null })).toBe("New chat");
    const long = "a".repeat(47) + "👋".repeat(200);
    expect(chatTitle({ title: long })).toBe(long);
    expect(shortTitle({ title: long })).toBe(`${"a".repeat(47)}👋…`);
  });
});
