import { describe, expect, it } from "vitest";
import type { Branch, Chat, Sibling } from "turnledger";
import { SiblingTurns, forkPoints } from "../../src/thread/sibling-turns";
import { MadeUpChat, rest, said, turnOf } from "./fakes";

function branch(id: string, base: string | null, turns: number, shared: number): Branch {
  return { id, base, turns, shared, head: null, isCurrent: false, isRunning: false, isSide: false, preview: "" };
}

function branchingOf(chat: MadeUpChat): SiblingTurns {
  return new SiblingTurns(() => chat as unknown as Chat, new AbortController().signal);
}

const sibling = (id: string, of: string): Sibling => ({ turn: turnOf(2, { id }), branch: of, isCurrent: false });

describe("fork points", () => {
  it("are the bases of branches", () => {
    expect(forkPoints([branch("a", null, 3, 0)])).toEqual(new Set());
    expect(forkPoints([branch("a", null, 3, 0), branch("b", "turn_1", 2, 1)])).toEqual(new Set(["turn_1"]));
    expect(forkPoints([branch("a", null, 3, 0), branch("b", null, 1, 0)])).toEqual(new Set([null]));
    const side = { ...branch("b", "turn_1", 2, 1), isSide: true };
    expect(forkPoints([branch("a", null, 3, 0), side])).toEqual(new Set());
  });

  it("are empty for an empty chat", () => {
    expect(forkPoints([branch("a", null, 3, 0), branch("b", "turn_1", 1, 1)])).toEqual(new Set());
  });
});

describe("siblings", () => {
  it("are requested only at fork points", async () => {
    const chat = new MadeUpChat();
    chat.branchList = [branch("a", null, 3, 0)];
    const branching = branchingOf(chat);
    const shown = [1, 2, 3].map((number) => branching.of(turnOf(number)));
    await rest();
    expect(chat.did).toEqual([["branches"]]);
    expect(shown.map(({ value }) => value)).toEqual([null, null, null]);
  });

  it("have the shown index and the branches of the others", async () => {
    const chat = new MadeUpChat();
    chat.branchList = [branch("a", null, 3, 0), branch("b", "turn_1", 2, 1)];
    chat.siblingList = [sibling("turn_2", "a"), sibling("turn_2b", "b")];
    const branching = branchingOf(chat);
    const shown = branching.of(turnOf(2));
    branching.of(turnOf(3));
    await rest();
    expect(shown.value).toEqual({ message: null, answer: { at: 0, branches: ["a", "b"] } });
    expect(chat.did).toEqual([["branches"], ["siblings", "turn_2"]]);
    expect(branching.of(turnOf(2))).toBe(shown);
  });

  it("are requested again after a change, if they were ever needed", async () => {
    const chat = new MadeUpChat();
    const branching = branchingOf(chat);
    await branching.refresh();
    expect(chat.did).toEqual([]);
    const shown = branching.of(turnOf(2));
    await rest();
    chat.branchList = [branch("a", null, 3, 0), branch("b", "turn_1", 2, 1)];
    chat.siblingList = [sibling("turn_2", "a"), sibling("turn_2b", "b")];
    await branching.refresh();
    expect(shown.value?.answer?.branches.length).toBe(2);
  });

  it("are versions of the message that was edited, or of the answer that was regenerated", async () => {
    const chat = new MadeUpChat();
    const asked = (id: string, text: string, of: string): Sibling => ({
      turn: turnOf(2, { id, input: [{ ...said(text), id: `item of ${id}` }] }),
      branch: of,
      isCurrent: false,
    });
    chat.branchList = [branch("a", null, 3, 0), branch("b", "turn_1", 2, 1)];
    chat.siblingList = [asked("q1", "Q", "a"), asked("q2", "Q", "b"), asked("e1", "E", "c"), asked("e2", "E", "d")];
    const branching = branchingOf(chat);
    const shown = ["q1", "q2", "e1"].map((id) => branching.of(turnOf(2, { id })));
    await rest();
    expect(shown.map(({ value }) => value)).toEqual([
      { message: { at: 0, branches: ["a", "d"] }, answer: { at: 0, branches: ["a", "b"] } },
      { message: { at: 0, branches: ["b", "d"] }, answer: { at: 1, branches: ["a", "b"] } },
      { message: { at: 1, branches: ["b", "c"] }, answer: { at: 0, branches: ["c", "d"] } },
    ]);
  });

  it("of hidden turns are dropped", async () => {
    const chat = new MadeUpChat();
    const branching = branchingOf(chat);
    const shown = branching.of(turnOf(2));
    branching.keep([turnOf(1)]);
    expect(branching.of(turnOf(2))).not.toBe(shown);
  });
});
