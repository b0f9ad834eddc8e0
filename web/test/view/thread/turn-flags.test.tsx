import { signal } from "@preact/signals";
import { act } from "preact/test-utils";
import { describe, expect, it } from "vitest";
import type { Turn } from "turnledger";
import type { Session } from "../../../src/session/session";
import type { Thread } from "../../../src/thread/thread";
import { strings } from "../../../src/strings";
import { AnswerActions } from "../../../src/view/thread/turn-actions";
import { EndStateView } from "../../../src/view/thread/turn-state";
import { said, turnOf } from "../../thread/fakes";
import { mounted } from "../mounted";

const { home, show } = mounted();

describe("the end of a turn", () => {
  const sent: unknown[] = [];

  function end(turn: Turn, isLast = false, mayRun = true) {
    const send = async (text: unknown): Promise<void> => void sent.push(text);
    const thread = { pending: signal([]), failed: signal(null), send } as unknown as Thread;
    return { session: { mayRun } as Session, thread, turn, isLast };
  }

  it.each([
    [[], "completed", []],
    [[0], "completed", [strings.turn.isPartlyHiddenFromModel(["message"])]],
    [[0, 1], "completed", [strings.turn.isHiddenFromModel]],
    [[0, 1], "interrupted", [strings.turn.interrupted, strings.turn.isHiddenFromModel]],
    [[], "settled", [strings.turn.failedWithEffects]],
  ] as const)("with %j hidden from the model says so: %s", (hiddenFromModel, kind, lines) => {
    show(<EndStateView {...end(turnOf(1, { hiddenFromModel, kind }))} />);
    expect(home.textContent).toBe(lines.join(""));
  });

  it.each([
    ["stop", strings.turn.empty],
    ["length", strings.turn.emptyAtLimit],
  ])("without an answer says why: %s", (reason, line) => {
    const turn = turnOf(1, { output: [said("", "assistant")], details: { finish_reason: reason } });
    show(<EndStateView {...end(turn)} />);
    expect(home.textContent).toBe(line);
  });

  it("at the length limit says so, and the last one can be continued", () => {
    const turn = turnOf(1, { details: { finish_reason: "length" } });
    show(<EndStateView {...end(turn)} />);
    expect(home.textContent).toBe(strings.turn.cutAtLimit);
    show(<EndStateView {...end(turn, true)} />);
    act(() => home.querySelector("button")?.click());
    expect(sent).toEqual([strings.turn.continueMessage]);
    show(<EndStateView {...end(turn, true, false)} />);
    expect(home.querySelector("button")).toBeNull();
  });
});

describe("the menu of a turn", () => {
  const asked: unknown[] = [];

  function entries(turn: Turn, mayWrite = true): HTMLElement[] {
    const thread = {
      isKept: true,
      pending: signal([]),
      siblings: () => signal(null),
      showToModel: async (of: Turn, isShown: boolean, place?: number) => void asked.push([of.id, isShown, place]),
    } as unknown as Thread;
    const session = { mayWrite, mayRun: false, models: signal([]) } as unknown as Session;
    show(<AnswerActions {...{ session, thread, turn, parts: [], isLast: false }} />);
    act(() => home.querySelector<HTMLElement>(`[aria-label="${strings.turn.moreActions}"]`)?.click());
    return [...document.querySelectorAll<HTMLElement>("[role=menuitem]")];
  }

  it.each([
    [[], strings.turn.hideFromModel, false, undefined],
    [[0], strings.turn.showToModel, true, undefined],
    [[0], strings.turn.showItemToModel("message"), true, 0],
    [[0], strings.turn.hideItemFromModel("answer"), false, 1],
  ] as const)("with %j hidden from the model offers: %s", (hiddenFromModel, label, isShown, place) => {
    const entry = entries(turnOf(3, { hiddenFromModel })).find((each) => each.textContent?.startsWith(label));
    act(() => entry!.click());
    expect(asked.at(-1)).toEqual(["turn_3", isShown, place]);
  });

  it("offers neither to a caller that may only read", () => {
    expect(entries(turnOf(3), false)).toEqual([]);
  });
});
