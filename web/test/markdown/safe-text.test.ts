import { describe, expect, it } from "vitest";
import { safeText, safeProse, visibleCode } from "../../src/markdown/safe-text";

const TURNING = ["\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"];

describe("safe text", () => {
  it.each(TURNING)("drops direction overrides: %j", (letter) => {
    expect(safeText(`a${letter}b`)).toBe("ab");
    expect(safeProse(`a${letter}b`)).toBe("ab");
    expect(visibleCode(`a${letter}b`)).toMatch(/^a⟨U\+20[26][0-9A-E]⟩b$/);
  });

  it("keeps the characters of scripts, emoji and flags", () => {
    const families = "👨‍👩‍👧 می‌خواهم e\u0301 שָׁלוֹם a\u200eb\u200f ";
    const flag = "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}";
    for (const text of [families, flag]) {
      expect(safeText(text)).toBe(text);
      expect(safeProse(text)).toBe(text);
    }
  });

  it("drops invisible text", () => {
    expect(safeText("a\u{e0068}\u{e0069}b")).toBe("ab");
    expect(safeText("pay\u200bpal\u2060.example\ufeff\u00ad")).toBe("paypal.example");
  });

  it("drops control characters except line ends and tabs", () => {
    expect(safeText("a\u0000\u001b[31m\u0085\tb\nc")).toBe("a[31m\tb\nc");
  });

  it("limits stacked combining marks", () => {
    expect(safeText(`a${"\u0301".repeat(500)}b`)).toBe(`a${"\u0301".repeat(6)}b`);
  });
});

describe("code", () => {
  it("shows invisible characters", () => {
    expect(visibleCode("a\u200bb\ufeff\u3164\u001b")).toBe("a⟨U+200B⟩b⟨U+FEFF⟩⟨U+3164⟩⟨U+001B⟩");
    expect(visibleCode("is\u200dAdmin")).toBe("is⟨U+200D⟩Admin");
    expect(visibleCode("x\u{e0041}")).toBe("x⟨U+E0041⟩");
  });

  it("keeps emoji and ordinary text", () => {
    expect(visibleCode('"👨‍👩‍👧" 日本 שלום\t1\n')).toBe('"👨‍👩‍👧" 日本 שלום\t1\n');
  });
});
