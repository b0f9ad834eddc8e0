import { describe, expect, it } from "vitest";
import { lineParts } from "../../src/chats/snippet";

/** The line for a snippet in which the first of these words is marked. */
function lineOf(snippet: string, word: string): string {
  const start = Array.from(snippet.slice(0, snippet.indexOf(word))).length;
  return lineParts(snippet, [[start, start + word.length]])
    .map(({ text, isMarked }) => (isMarked ? `[${text}]` : text))
    .join("");
}

describe("the snippet of a hit", () => {
  it("begins shortly before the first mark, at a word", () => {
    expect(lineOf("Once upon a time there was a flamingo.", "flamingo")).toBe("…a time there was a [flamingo].");
    expect(lineOf("A 🦩 flamingo.", "flamingo")).toBe("A 🦩 [flamingo].");
    expect(lineOf(`${"🦩".repeat(30)} flamingo`, "flamingo")).toBe(`…${"🦩".repeat(19)} [flamingo]`);
  });
});
