import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ErrorBoundary } from "../../src/view/error-boundary";
import { mounted } from "./mounted";

function Broken(): never {
  throw new Error("It is broken.");
}

const { home, show } = mounted();
beforeEach(() => void vi.spyOn(console, "error").mockImplementation(() => {}));
afterEach(() => vi.restoreAllMocks());

describe("a view that throws", () => {
  it("is replaced by an error, and the views beside it stay", () => {
    show(
      <>
        <ErrorBoundary subject="This chat">
          <Broken />
        </ErrorBoundary>
        <ErrorBoundary subject="The field to write in">
          <textarea value="A draft" />
        </ErrorBoundary>
      </>,
    );
    expect(home.querySelector("[role=alert]")?.textContent).toContain("This chat could not be displayed");
    expect(home.querySelector("button")?.textContent).toContain("Reload page");
    expect(home.querySelector("textarea")?.value).toBe("A draft");
    expect(console.error).toHaveBeenCalled();
  });

  it("is tried again for another subject", () => {
    const showOf = (of: string): void =>
      show(
        <ErrorBoundary subject="This chat" of={of}>
          {of === "broken" ? <Broken /> : <p>Whole</p>}
        </ErrorBoundary>,
      );
    showOf("broken");
    expect(home.querySelector("[role=alert]")).not.toBe(null);
    showOf("other");
    expect(home.textContent).toBe("Whole");
  });
});
