import { describe, expect, it } from "vitest";
import { formatDuration, turnUsage } from "../../src/thread/turn-usage";
import { turnOf } from "./fakes";

describe("the usage of a turn", () => {
  it("has the values that the runner reported", () => {
    const usage = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 };
    const told = turnUsage(turnOf(1, { details: { model: "tiny", usage } }));
    const details = "12 tokens: 10 input, 2 output. Took 0.5 s";
    expect(told).toEqual({ model: "tiny", summary: "12 tokens · 0.5 s", details });
    expect(turnUsage(turnOf(1, { committedAt: 1_000 }))).toEqual({ model: null, summary: "", details: "" });
  });

  it("is read from either naming, and ignores values that are not numbers", () => {
    const usage = { input_tokens: 1, output_tokens: 0 };
    expect(turnUsage(turnOf(1, { details: { usage }, committedAt: 1_000 })).summary).toBe("1 token");
    expect(turnUsage(turnOf(1, { details: { usage: { total_tokens: "many" } }, committedAt: 1_000 })).summary).toBe("");
  });

  it("has minutes for long durations", () => {
    expect([formatDuration(1_234), formatDuration(59_940), formatDuration(125_000)]).toEqual([
      "1.2 s",
      "59.9 s",
      "2 min 5 s",
    ]);
  });
});
