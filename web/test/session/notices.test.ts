import { describe, expect, it } from "vitest";
import { Notices } from "../../src/session/notices";

const undo = { label: "Undo", run: () => {} };
const texts = (notices: Notices): string[] => notices.shown.value.map(({ text }) => text);

describe("notices", () => {
  it("with an action stay for their full time", () => {
    const notices = new Notices();
    const numbers = Array.from({ length: 9 }, (_, at) => `${at}`);
    for (const each of numbers) notices.news(each, { action: undo, stays: 10_000 });
    for (const each of numbers) notices.problem(`problem ${each}`);
    expect(texts(notices)).toEqual([...numbers, "problem 5", "problem 6", "problem 7", "problem 8"]);
  });

  it("leave the others unchanged when one is removed", () => {
    const notices = new Notices();
    const remove = notices.news("first", { action: undo });
    notices.news("second");
    remove();
    expect(texts(notices)).toEqual(["second"]);
  });
});
