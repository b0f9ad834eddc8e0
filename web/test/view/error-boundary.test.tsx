import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ErrorBoundary } from "../../src/view/error-boundary";

function Broken(): never {
  throw new Error("It is broken.");
}

let home: HTMLElement;
beforeEach(() => {
  home = document.body.appendChild(document.createElement("div"));
  vi.spyOn(console, "error").mockImplementation(() => {});
});
afterEach(() => {
  render(null, home);
  home.remove();
  vi.restoreAllMocks();
});

describe("a view that throws", () => {
  it("is replaced by an error, and the views beside it stay", () => {
    act(() =>
      render(
        <>
          <ErrorBoundary subject="This chat">
            <Broken />
          </ErrorBoundary>
          <ErrorBoundary subject="The field to write in">
            <textarea value="A draft" />
          </ErrorBoundary>
        </>,
        home,
      ),
    );
    expect(home.querySelector("[role=alert]")?.textContent).toContain("This chat could not be displayed");
    expect(home.querySelector("button")?.textContent).toContain("Reload page");
    expect(home.querySelector("textarea")?.value).toBe("A draft");
    expect(console.error).toHaveBeenCalled();
  });

  it("is tried again for another subject", () => {
    const show = (of: string) =>
      act(() =>
        render(
          <ErrorBoundary subject="This chat" of={of}>
            {of === "broken" ? <Broken /> : <p>Whole</p>}
          </ErrorBoundary>,
          home,
        ),
      );
    show("broken");
    expect(home.querySelector("[role=alert]")).not.toBe(null);
    show("other");
    expect(home.textContent).toBe("Whole");
  });
});
