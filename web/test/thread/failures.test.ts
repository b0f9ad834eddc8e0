import { describe, expect, it } from "vitest";
import { errors } from "turnledger";
import { MemoryStorage } from "../../src/browser/storage";
import { StorageScope } from "../../src/session/storage-scope";
import { failedTurn, Failures, failedTurnOf, lastFailedAttempt, failureText } from "../../src/thread/failures";
import { attemptOf, said, turnOf } from "./fakes";

const ASKED = { name: "a", replaces: null, isLocal: true, attempt: "turn_9", input: [said("Hello"), said("you")] };
const FAILED = attemptOf("turn_9", {
  state: "failed",
  failure: { code: "model_refused", message: "No." },
  createdAt: 9_000,
  endedAt: 9_100,
});

describe("a failed message", () => {
  it("has a reason in plain words, with the server's details where they help", () => {
    const told = failedTurn(ASKED, "model_refused", "Status 400.");
    const words = { message: "The model refused this request.", detail: "Status 400." };
    expect(told).toMatchObject({ text: "Hello\nyou", ...words });
    expect(failedTurn(ASKED, "queue_full", "Too many.").detail).toBeNull();
    expect(failureText("some_word", "As it was said.")).toBe("As it was said.");
    for (const code of ["constructor", "__proto__"]) expect(failureText(code, "Said.")).toBe("Said.");
    expect(failedTurn(ASKED, "model_refused", "Not \u202ethis").detail).toBe("Not this");
  });

  it("is the same for an error and for the last event of a turn", () => {
    const byError = failedTurnOf(ASKED, new errors.ModelRefused("model_refused", "No."));
    expect(failedTurnOf(ASKED, { code: "model_refused", message: "No." })).toEqual(byError);
    expect(failedTurnOf(ASKED, new TypeError("Odd.")).message).toBe("Odd.");
  });

  it("reports whether a user stopped it", () => {
    expect(failedTurn(ASKED, "turn_stopped", "").isStopped).toBe(true);
  });
});

describe("the last attempt", () => {
  it("is found if it failed and no turn followed", () => {
    expect(lastFailedAttempt([turnOf(1)], [FAILED])?.id).toBe("turn_9");
    expect(lastFailedAttempt([turnOf(10)], [FAILED])).toBeNull();
    const later = attemptOf("turn_10", { createdAt: 10_000 });
    expect(lastFailedAttempt([], [later, FAILED])).toBeNull();
    expect(lastFailedAttempt([], [{ ...FAILED, state: "resumed" }])).toBeNull();
    expect(lastFailedAttempt([], [])).toBeNull();
  });
});

describe("the failures of a chat", () => {
  it("are found in a page, and cleared by a later turn", () => {
    const failures = new Failures(new StorageScope("own", new MemoryStorage()));
    failures.find([turnOf(1)], [FAILED]);
    expect(failures.last.value).toMatchObject({ name: "turn_9", isLocal: false, code: "model_refused" });
    failures.find([turnOf(1)], [FAILED]);
    expect(failures.last.value).not.toBeNull();
    failures.find([turnOf(1), turnOf(10)], [FAILED]);
    expect(failures.last.value).toBeNull();
  });

  it("stay while earlier pending turns end", () => {
    const failures = new Failures(new StorageScope("own", new MemoryStorage()));
    failures.put(failedTurn(ASKED, "queue_full", ""), ["turn_1", "turn_2"]);
    failures.find([turnOf(1), turnOf(2)], []);
    expect(failures.last.value).not.toBeNull();
    failures.find([turnOf(3)], []);
    expect(failures.last.value).toBeNull();
  });

  it("stay dismissed after a reload", () => {
    const storage = new StorageScope("own", new MemoryStorage());
    const failures = new Failures(storage);
    failures.put(failedTurn(ASKED, "model_refused", ""), [null]);
    failures.dismiss();
    expect(failures.last.value).toBeNull();
    const later = new Failures(storage);
    later.find([], [FAILED]);
    expect(later.last.value).toBeNull();
    storage.set("dismissed failures", "{no list");
    later.find([], [FAILED]);
    expect(later.last.value?.name).toBe("turn_9");
  });
});
