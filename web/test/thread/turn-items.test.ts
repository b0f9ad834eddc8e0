import { expect, it } from "vitest";
import type { Item } from "turnledger";
import { namedItems } from "../../src/thread/turn-items";
import { said, turnOf } from "./fakes";

const call = (id: string): Item => ({ type: "function_call", call_id: id, name: "look", arguments: "{}" });
const result = (id: string): Item => ({ type: "function_call_output", call_id: id, output: "Seen." });

it("items that can be hidden have names, and a call stands for its result", () => {
  const turn = turnOf(1, {
    input: [said("Be brief.", "system"), said("Look")],
    output: [
      { type: "reasoning", summary: [] },
      call("a"),
      result("a"),
      call("b"),
      result("b"),
      said("One.", "assistant"),
      said("Two.", "assistant"),
    ],
    hidden: [7],
    hiddenFromModel: [3, 4],
  });
  expect(namedItems(turn).map(({ name, place, isHidden }) => [name, place, isHidden])).toEqual([
    ["system message", 0, false],
    ["message", 1, false],
    ["reasoning", 2, false],
    ["look", 3, true],
    ["look (2)", 5, false],
    ["answer", 8, false],
  ]);
});
