import { describe, expect, it } from "vitest";
import { withoutIncomplete } from "../../src/markdown/incomplete";

describe("incomplete Markdown", () => {
  it.each([
    ["a list below a paragraph is no heading for a moment", "Here:\n-", "Here:\n"],
    ["nor are its first signs", "Here:\n1.", "Here:\n"],
    ["nor those of a quotation with a list", "> a\n> -", "> a\n"],
    ["strong words are strong from the start", "a **b", "a **b**"],
    ["and stay so at their end", "a **b*", "a **b**"],
    ["and between two words", "a **b c ", "a **b c**"],
    ["nothing is seen of what only starts", "a **", "a "],
    ["strong words that have ended stay", "a **b** c", "a **b** c"],
    ["code is code from the start", "a `b", "a `b`"],
    ["signs in code are code", "a `**b` c", "a `**b` c"],
    ["nothing is seen of code that only starts", "a `", "a "],
    ["words of a link are read before its address", "a [b c](https://d.exam", "a b c"],
    ["nothing is seen of half an image", "a ![b](https://d", "a "],
    ["links that have ended stay", "[b](https://d.example) c", "[b](https://d.example) c"],
    ["the line below the names of a table stays", "| a |\n|--", "| a |\n|--"],
    ["a complete line stays", "a **b\n", "a **b\n"],
    ["words stay", "3 * 4 - 5", "3 * 4 - 5"],
  ])("%s", (_, source, shown) => expect(withoutIncomplete(source)).toBe(shown));
});
