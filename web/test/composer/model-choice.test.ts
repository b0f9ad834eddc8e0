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
  it("defaults to the last chosen one", () => {
    expect(choosing().choice.name.value).toBe("one");
  });

  it("is the last one that answered there", () => {
    const { thread, choice } = choosing();
    thread.turns.value = [turnOf("a", { model: "one" }), turnOf("b", { model: "two" })];
    expect(choice.name.value).toBe("two");
  });

  it("is not a reported name that the server does not list", () => {
    const { thread, choice } = choosing();
    thread.turns.value = [turnOf("a", { model: "two-2026-01-31" })];
    expect(choice.name.value).toBe("one");
  });

  it("is the chosen one, whichever answered last, and the default for new chats", () => {
    const { session, thread, choice } = choosing();
    thread.turns.value = [turnOf("a", { model: "one" })];
    choice.choose("two");
    expect(choice.name.value).toBe("two");
    expect(session.chosen).toEqual(["two"]);
  });

  it("falls back if the chosen one is gone", () => {
    const { session, choice } = choosing();
    choice.choose("two");
    session.models.value = [{ id: "one" }];
    expect(choice.name.value).toBe("one");
  });

  it("reports a gone model until another is chosen", () => {
    const { choice } = choosing("former");
    expect(choice.gone.value).toBe("former");
    choice.choose("two");
    expect(choice.gone.value).toBeNull();
  });

  it("stops reporting it once accepted", () => {
    const { session, choice } = choosing("former");
    choice.accept();
    expect([choice.gone.value, session.chosen]).toEqual([null, ["one"]]);
    const { session: other, choice: usual } = choosing("two");
    usual.accept();
    expect(other.chosen).toEqual([]);
  });

  it("reports no listed model, and none before the list is known", () => {
    expect(choosing("two").choice.gone.value).toBeNull();
    const { session, choice } = choosing("former");
    session.models.value = [];
    expect(choice.gone.value).toBeNull();
  });
});
