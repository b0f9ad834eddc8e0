import { describe, expect, it } from "vitest";
import type { ModelUsage } from "turnledger";
import { UsageCount } from "../../src/admin/usage-count";
import type { Session } from "../../src/session/session";

function used(owner: string, model: string | null, turns: number): ModelUsage {
  return { owner, model, turns, inputTokens: 10 * turns, outputTokens: turns, bytes: 100 * turns };
}

/** A server with these pages; `between` runs before each but the first. */
function countOf(pages: readonly ModelUsage[][], between: () => void = () => {}): UsageCount {
  const usage = () => ({
    async *pages() {
      for (const [at, data] of pages.entries()) {
        if (at > 0) between();
        yield { data, next: at + 1 < pages.length ? "more" : null };
      }
    },
  });
  return new UsageCount({ client: { usage } } as unknown as Session);
}

describe("the count of usage", () => {
  it("adds up the pages by owner and model, most turns first", async () => {
    const count = countOf([
      [used("ann", "small", 1), used("ann", null, 2), used("bob", "small", 3)],
      [used("ann", "small", 4)],
      [],
    ]);
    await count.count();
    expect(count.state.value).toBe("done");
    expect(count.lines.value).toEqual([used("ann", "small", 5), used("bob", "small", 3), used("ann", null, 2)]);
    expect(count.total.value).toEqual({ turns: 10, inputTokens: 100, outputTokens: 10, bytes: 1_000 });
    await count.count(); // from the beginning
    expect(count.total.value.turns).toBe(10);
  });

  it("keeps what is counted when it is stopped", async () => {
    const count = countOf([[used("ann", "small", 1)], [used("ann", "small", 4)]], () => count.stop());
    await count.count();
    expect([count.state.value, count.total.value.turns]).toEqual(["stopped", 1]);
  });

  it("keeps what is counted when a page fails, and says why", async () => {
    const count = countOf([[used("ann", "small", 1)], []], () => {
      throw new Error("The server is away.");
    });
    await count.count();
    expect([count.state.value, count.total.value.turns]).toEqual(["stopped", 1]);
    expect(count.problem.value).toBe("The server is away.");
  });
});
