import { signal } from "@preact/signals";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Session } from "../../../src/session/session";
import type { Siblings, Thread } from "../../../src/thread/thread";
import { strings } from "../../../src/strings";
import { VersionSwitcher } from "../../../src/view/thread/version-switcher";
import { turnOf } from "../../thread/fakes";
import { mounted } from "../mounted";

const [first, second] = [turnOf(1, { id: "turn_a" }), turnOf(1, { id: "turn_b" })];
const branches = ["branch_a", "branch_b"];
const { home, show } = mounted();
let search: HTMLInputElement;
let loaded: ReturnType<typeof signal<Siblings | null>>;

/** Press "Next version", and show the other turn, as a thread does before its siblings are loaded. */
function switchVersion(): void {
  loaded = signal<Siblings | null>(null);
  const thread = {
    pending: signal([]),
    siblings: ({ id }: { id: string }) => (id === first.id ? signal({ message: null, answer: { at: 0, branches } }) : loaded),
    switch: () => Promise.resolve(),
  } as unknown as Thread;
  const showTurn = (turn: typeof first): void => {
    const session = { mayWrite: true } as Session;
    show(<VersionSwitcher key={turn.id} of="answer" {...{ session, thread, turn }} />);
  };
  showTurn(first);
  const next = home.querySelector<HTMLElement>(`[aria-label="${strings.turn.nextVersion}"]`)!;
  next.focus();
  act(() => next.click());
  showTurn(second);
}

beforeEach(() => void (search = document.body.appendChild(document.createElement("input"))));
afterEach(() => search.remove());

describe("the version switcher", () => {
  it("focuses the same button of the version that it switched to", () => {
    switchVersion();
    act(() => void (loaded.value = { message: null, answer: { at: 1, branches } }));
    expect(document.activeElement?.getAttribute("aria-label")).toBe(strings.turn.nextVersion);
  });

  it("leaves the focus where the user moved it meanwhile", () => {
    switchVersion();
    search.focus();
    act(() => void (loaded.value = { message: null, answer: { at: 1, branches } }));
    expect(document.activeElement).toBe(search);
  });
});
