import { beforeEach, describe, expect, it, vi } from "vitest";
import { CodeBlock } from "../../src/markdown/code-block";
import type { HighlightSpans } from "../../src/markdown/highlight/highlight";

const asked: { text: string; answer: (marks: HighlightSpans | null) => void }[] = [];

vi.mock("../../src/markdown/highlight/worker-client", () => ({
  highlightInWorker: (text: string) => new Promise<HighlightSpans | null>((answer) => asked.push({ text, answer })),
}));

beforeEach(() => {
  asked.length = 0;
  vi.useFakeTimers();
});

function code(block: CodeBlock): HTMLElement {
  return block.element.querySelector("code") as HTMLElement;
}

function coloured(block: CodeBlock): [string | null, string][] {
  return [...code(block).querySelectorAll("span[class^=code-]:not(.code-part)")].map((each) => [
    each.textContent,
    each.className,
  ]);
}

describe("a code block", () => {
  it("is coloured once the colours arrive, with the same text", async () => {
    const block = new CodeBlock("let x", "js");
    asked[0]?.answer([
      { length: 3, kind: "code-keyword" },
      { length: 2, kind: null },
    ]);
    await vi.advanceTimersByTimeAsync(0);
    expect(coloured(block)).toEqual([["let", "code-keyword"]]);
    expect(code(block).textContent).toBe("let x");
  });

  it("keeps the colours of its start while it grows", async () => {
    const block = new CodeBlock("let x", "js", true);
    asked[0]?.answer([{ length: 3, kind: "code-keyword" }]);
    block.show("let x = 1", true);
    await vi.advanceTimersByTimeAsync(0);
    const first = code(block).querySelector(".code-keyword");
    expect(code(block).textContent).toBe("let x = 1");
    await vi.advanceTimersByTimeAsync(1_000);
    asked[1]?.answer([
      { length: 3, kind: "code-keyword" },
      { length: 5, kind: null },
      { length: 1, kind: "code-number" },
    ]);
    await vi.advanceTimersByTimeAsync(0);
    expect(code(block).querySelector(".code-keyword")).toBe(first);
    expect(coloured(block)).toEqual([
      ["let", "code-keyword"],
      ["1", "code-number"],
    ]);
  });

  it("is highlighted periodically while it grows, and once more at its end", async () => {
    const block = new CodeBlock("", "js", true);
    for (let length = 1; length <= 100; length += 1) {
      block.show("x".repeat(length), true);
      await vi.advanceTimersByTimeAsync(10);
    }
    expect(asked.length).toBeLessThan(7);
    block.show("x".repeat(100), false);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(asked.at(-1)?.text).toBe("x".repeat(100));
  });

  it("is coloured across chunks", async () => {
    const line = `${"x".repeat(99)}\n`;
    const block = new CodeBlock(line.repeat(100), "js");
    expect(code(block).children.length).toBeGreaterThan(1);
    asked[0]?.answer([
      { length: 50, kind: null },
      { length: 9_000, kind: "code-string" },
    ]);
    await vi.advanceTimersByTimeAsync(0);
    expect(code(block).textContent).toBe(line.repeat(100));
    expect(
      coloured(block)
        .map(([text]) => text)
        .join(""),
    ).toHaveLength(9_000);
  });

  it("is not coloured if it is long or the language is unknown", () => {
    new CodeBlock("x".repeat(20_001), "js");
    new CodeBlock("x", "klingon");
    new CodeBlock("x", "constructor");
    expect(asked).toEqual([]);
  });

  it("ignores colours that arrive too late", async () => {
    const block = new CodeBlock("let x", "js");
    block.show("other", false);
    asked[0]?.answer([{ length: 3, kind: "code-keyword" }]);
    await vi.advanceTimersByTimeAsync(0);
    expect(coloured(block)).toEqual([]);
    expect(code(block).textContent).toBe("other");
  });
});
