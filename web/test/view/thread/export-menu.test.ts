import { describe, expect, it } from "vitest";
import { fileNameOf } from "../../../src/view/thread/export-menu";

describe("the name of a file", () => {
  it("is made of the letters, digits, spaces and dashes of a title", () => {
    expect(fileNameOf("One/Two: ..\\numbers?", "md")).toBe("One Two numbers.md");
    expect(fileNameOf("Größe – 12", "md")).toBe("Größe 12.md");
  });

  it("is one that every system takes", () => {
    const odd = [null, "", "../..", "con", "\u202e"];
    expect(odd.map((title) => fileNameOf(title, "jsonl"))).toEqual(odd.map(() => "chat.jsonl"));
    expect(Array.from(fileNameOf("𝒳".repeat(100), "md")).length).toBe(63);
  });
});
