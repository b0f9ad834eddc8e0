import { describe, expect, it } from "vitest";
import { exportFileName } from "../../../src/view/header/export-file";

describe("an export's file name", () => {
  it("has the letters, digits, spaces and dashes of the title", () => {
    expect(exportFileName("One/Two: ..\\numbers?", "md")).toBe("One Two numbers.md");
    expect(exportFileName("Größe – 12", "md")).toBe("Größe 12.md");
  });

  it("is valid on every system", () => {
    const odd = [null, "", "../..", "con", "\u202e"];
    expect(odd.map((title) => exportFileName(title, "jsonl"))).toEqual(odd.map(() => "chat.jsonl"));
    expect(Array.from(exportFileName("𝒳".repeat(100), "md")).length).toBe(63);
  });
});
