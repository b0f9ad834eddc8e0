import { describe, expect, it } from "vitest";
import { ModelChoice } from "../../src/composer/model-choice";
import { MadeUpSession, MadeUpThread, turnOf } from "./fakes";

function choosing(remembered?: string): { session: MadeUpSession; thread: MadeUpThread; choice: ModelChoice } {
  const session = new MadeUpSession();
  if (remembered !== undefined) session.storage.set("model", remembered);
  const thread = new MadeUpThread("conv_1");
  return { session, thread, choice: new ModelChoice(session.asSession, thread.shown) };
}

describe("the model of a chat", () => {
  it("is the one that was chosen last anywhere, at first", () => {
    expect(choosing().choice.name.value).toBe("one");
  });

  it("is the one that answered last in it", () => {
    const { thread, choice } = choosing();
    thread.turns.value = [turnOf("a", { model: "one" }), turnOf("b", { model: "two" })];
    expect(choice.name.value).toBe("two");
  });

  it("is not one that calls itself by a name that nobody can ask for", () => {
    const { thread, choice } = choosing();
    thread.turns.value = [turnOf("a", { model: "two-2026-01-31" })];
    expect(choice.name.value).toBe("one");
  });

  it("is the one that was chosen for it, whoever answered last; and others are told", () => {
    const { session, thread, choice } = choosing();
    thread.turns.value = [turnOf("a", { model: "one" })];
    choice.choose("two");
    expect(choice.name.value).toBe("two");
    expect(session.chosen).toEqual(["two"]);
  });

  it("is another when the chosen one is gone", () => {
    const { session, choice } = choosing();
    choice.choose("two");
    session.models.value = [{ id: "one" }];
    expect(choice.name.value).toBe("one");
  });

  it("says which one is gone, until another is chosen", () => {
    const { choice } = choosing("former");
    expect(choice.gone.value).toBe("former");
    choice.choose("two");
    expect(choice.gone.value).toBeNull();
  });

  it("says no more of it once that was accepted", () => {
    const { session, choice } = choosing("former");
    choice.accept();
    expect([choice.gone.value, session.chosen]).toEqual([null, ["one"]]);
    const { session: other, choice: usual } = choosing("two");
    usual.accept();
    expect(other.chosen).toEqual([]);
  });

  it("says nothing of one that is there, nor while nobody knows", () => {
    expect(choosing("two").choice.gone.value).toBeNull();
    const { session, choice } = choosing("former");
    session.models.value = [];
    expect(choice.gone.value).toBeNull();
  });
});
