import { describe, expect, it } from "vitest";
import { harmless, harmlessProse, seenCode } from "../../src/markdown/safe-text";

const TURNING = ["\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"];

describe("harmless text", () => {
  it.each(TURNING)("turns nothing round: %j", (letter) => {
    expect(harmless(`a${letter}b`)).toBe("ab");
    expect(harmlessProse(`a${letter}b`)).toBe("ab");
    expect(seenCode(`a${letter}b`)).toMatch(/^a⟨U\+20[26][0-9A-E]⟩b$/);
  });

  it("keeps what scripts, emoji and flags are made of", () => {
    const families = "👨‍👩‍👧 می‌خواهم e\u0301 שָׁלוֹם a\u200eb\u200f ";
    const flag = "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}";
    for (const text of [families, flag]) {
      expect(harmless(text)).toBe(text);
      expect(harmlessProse(text)).toBe(text);
    }
  });

  it("has no words that only machines see", () => {
    expect(harmless("a\u{e0068}\u{e0069}b")).toBe("ab");
    expect(harmless("pay\u200bpal\u2060.example\ufeff\u00ad")).toBe("paypal.example");
  });

  it("has no controls but ends of lines and tabs", () => {
    expect(harmless("a\u0000\u001b[31m\u0085\tb\nc")).toBe("a[31m\tb\nc");
  });

  it("does not tower over the lines above it", () => {
    expect(harmless(`a${"\u0301".repeat(500)}b`)).toBe(`a${"\u0301".repeat(6)}b`);
  });
});

describe("code", () => {
  it("shows what would not be seen", () => {
    expect(seenCode("a\u200bb\ufeff\u3164\u001b")).toBe("a⟨U+200B⟩b⟨U+FEFF⟩⟨U+3164⟩⟨U+001B⟩");
    expect(seenCode("is\u200dAdmin")).toBe("is⟨U+200D⟩Admin");
    expect(seenCode("x\u{e0041}")).toBe("x⟨U+E0041⟩");
  });

  it("keeps emoji and ordinary text", () => {
    expect(seenCode('"👨‍👩‍👧" 日本 שלום\t1\n')).toBe('"👨‍👩‍👧" 日本 שלום\t1\n');
  });
});
