import { signal } from "@preact/signals";
import { describe, expect, it } from "vitest";
import { ChatSelection } from "../../src/chats/chat-selection";
import { idOf, row } from "./fakes";

const ids = [0, 1, 2, 3, 4].map((number) => idOf(number));
const selected = (selection: ChatSelection): number[] => selection.rows.value.map(({ id }) => ids.indexOf(id));

function make() {
  const shown = signal(ids.map((id) => row({ id })));
  return { shown, selection: new ChatSelection(shown) };
}

describe("a selection", () => {
  it("is off until it starts, and forgets everything when it stops", () => {
    const { selection } = make();
    expect([selection.isOn.value, selected(selection)]).toEqual([false, []]);
    selection.start(ids[1]);
    expect([selection.isOn.value, selected(selection)]).toEqual([true, [1]]);
    selection.stop();
    selection.start();
    expect(selected(selection)).toEqual([]);
  });

  it("takes ranges in both directions from the last chat", () => {
    const { selection } = make();
    selection.start();
    selection.set(ids[3]!, true, true); // no last one yet
    expect(selected(selection)).toEqual([3]);
    selection.set(ids[1]!, true, true);
    expect(selected(selection)).toEqual([1, 2, 3]);
    selection.set(ids[2]!, false, true);
    expect(selected(selection)).toEqual([3]);
    selection.setAll(true);
    expect(selected(selection)).toEqual([0, 1, 2, 3, 4]);
    selection.setAll(false);
    expect(selected(selection)).toEqual([]);
  });

  it("loses a chat that leaves the list, also within a range", () => {
    const { shown, selection } = make();
    selection.start(ids[0]);
    selection.set(ids[4]!, true);
    shown.value = shown.value.slice(0, 4);
    expect(selected(selection)).toEqual([0]);
    selection.set(ids[2]!, true, true); // the last one is gone
    expect(selected(selection)).toEqual([0, 2]);
  });
});
