import { describe, expect, it } from "vitest";
import { exportFileName } from "../../../src/view/thread/export-menu";

describe("the name of a file", () => {
  it("is made of the letters, digits, spaces and dashes of a title", () => {
    expect(exportFileName("One/Two: ..\\numbers?", "md")).toBe("One Two numbers.md");
    expect(exportFileName("Größe – 12", "md")).toBe("Größe 12.md");
  });

  it("is one that every system takes", () => {
    const odd = [null, "", "../..", "con", "\u202e"];
    expect(odd.map((title) => exportFileName(title, "jsonl"))).toEqual(odd.map(() => "chat.jsonl"));
    expect(Array.from(exportFileName("𝒳".repeat(100), "md")).length).toBe(63);
  });
});
