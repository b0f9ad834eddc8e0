import { describe, expect, it } from "vitest";
import { formatDuration, turnUsage } from "../../src/thread/turn-usage";
import { turnOf } from "./fakes";

describe("what a turn took", () => {
  it("is told as far as its runner has told", () => {
    const usage = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 };
    const told = turnUsage(turnOf(1, { details: { model: "tiny", usage } }));
    const details = "12 tokens: 10 input, 2 output. Took 0.5 s";
    expect(told).toEqual({ model: "tiny", summary: "12 tokens · 0.5 s", details });
    expect(turnUsage(turnOf(1, { committedAt: 1_000 }))).toEqual({ model: null, summary: "", details: "" });
  });

  it("is read from either way of counting, and from nothing that is no number", () => {
    const usage = { input_tokens: 1, output_tokens: 0 };
    expect(turnUsage(turnOf(1, { details: { usage }, committedAt: 1_000 })).summary).toBe("1 token");
    expect(turnUsage(turnOf(1, { details: { usage: { total_tokens: "many" } }, committedAt: 1_000 })).summary).toBe("");
  });

  it("is said in minutes where it took long", () => {
    expect([formatDuration(1_234), formatDuration(59_940), formatDuration(125_000)]).toEqual([
      "1.2 s",
      "59.9 s",
      "2 min 5 s",
    ]);
  });
});
