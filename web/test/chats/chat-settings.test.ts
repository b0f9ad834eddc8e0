import { describe, expect, it } from "vitest";
import { MAX_INSTRUCTIONS, settingsOf, settingsOnly, turnOptionsOf, withSettings } from "../../src/chats/chat-settings";

const NONE = { instructions: null, temperature: null, maxTokens: null };

describe("the settings of a chat", () => {
  it("are none without metadata, and those of other programs stay", () => {
    expect(settingsOf({ ticket: "4711" })).toEqual(NONE);
    expect(turnOptionsOf(NONE)).toEqual({});
    const set = { instructions: "Be brief.", temperature: 0, maxTokens: 500 };
    const metadata = withSettings({ ticket: "4711", "turn.instructions": "Old" }, set);
    expect(metadata).toEqual({
      ticket: "4711",
      "turn.instructions": "Be brief.",
      "turn.temperature": "0",
      "turn.max_tokens": "500",
    });
    expect(settingsOf(metadata)).toEqual(set);
    expect(settingsOnly(metadata)["ticket"]).toBeUndefined();
    expect(turnOptionsOf(set)).toEqual({
      instructions: "Be brief.",
      settings: { temperature: 0, max_tokens: 500 },
    });
    expect(withSettings(metadata, NONE)).toEqual({ ticket: "4711" });
  });

  it("keep long instructions in several values, and no half characters", () => {
    const instructions = `x${"🙂".repeat(MAX_INSTRUCTIONS - 1)}`;
    const metadata = withSettings({}, { ...NONE, instructions });
    const values = Object.values(metadata);
    expect([values.length, ...new Set(values.map((each) => Array.from(each).length))]).toEqual([10, 512]);
    expect(values.some((each) => /^[\uDC00-\uDFFF]|[\uD800-\uDBFF]$/.test(each))).toBe(false);
    expect(settingsOf(metadata).instructions).toBe(instructions);
    expect(Object.keys(withSettings(metadata, { ...NONE, instructions: "Short" }))).toEqual(["turn.instructions"]);
  });

  it("distinguish removed instructions from none", () => {
    const metadata = withSettings({}, { ...NONE, instructions: "" });
    expect(metadata).toEqual({ "turn.instructions": "" });
    expect(turnOptionsOf(settingsOf(metadata))).toEqual({ instructions: "" });
  });

  it("ignore numbers that are none", () => {
    const metadata = { "turn.temperature": "warm", "turn.max_tokens": "" };
    expect(settingsOf(metadata)).toEqual(NONE);
  });
});
