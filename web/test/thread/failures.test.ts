import { describe, expect, it } from "vitest";
import { errors } from "turnledger";
import { Memory, Realm } from "../../src/session/storage-scope";
import { failed, Failures, failureOf, lastFailed, wordsOfFailure } from "../../src/thread/failures";
import { attemptOf, said, turnOf } from "./fakes";

const ASKED = { name: "a", replaces: null, isHere: true, attempt: "turn_9", input: [said("Hello"), said("you")] };
const FAILED = attemptOf("turn_9", {
  state: "failed",
  failure: { code: "model_refused", message: "No." },
  createdAt: 9_000,
  endedAt: 9_100,
});

describe("what failed", () => {
  it("is told in plain words, with what the model's server said where that helps", () => {
    const told = failed(ASKED, "model_refused", "ModelRefused: Status 400.");
    const words = { message: "The model refused this request.", detail: "Status 400." };
    expect(told).toMatchObject({ text: "Hello\nyou", ...words });
    expect(failed(ASKED, "queue_full", "QueueFull: Too many.").detail).toBeNull();
    expect(wordsOfFailure("some_word", "As it was said.")).toBe("As it was said.");
    for (const code of ["constructor", "__proto__"]) expect(wordsOfFailure(code, "Said.")).toBe("Said.");
    expect(failed(ASKED, "model_refused", "Not \u202ethis").detail).toBe("Not this");
  });

  it("is told alike by an error and by the last event of a turn", () => {
    const byError = failureOf(ASKED, new errors.ModelRefused("model_refused", "No."));
    expect(failureOf(ASKED, { code: "model_refused", message: "No." })).toEqual(byError);
    expect(failureOf(ASKED, new TypeError("Odd.")).message).toBe("Odd.");
  });

  it("says whether somebody stopped it", () => {
    expect(failed(ASKED, "turn_stopped", "").isStopped).toBe(true);
  });
});

describe("the last attempt", () => {
  it("is told if it failed and nothing came after it", () => {
    expect(lastFailed([turnOf(1)], [FAILED])?.id).toBe("turn_9");
    expect(lastFailed([turnOf(10)], [FAILED])).toBeNull();
    const later = attemptOf("turn_10", { createdAt: 10_000 });
    expect(lastFailed([], [later, FAILED])).toBeNull();
    expect(lastFailed([], [{ ...FAILED, state: "resumed" }])).toBeNull();
    expect(lastFailed([], [])).toBeNull();
  });
});

describe("the failures of a chat", () => {
  it("are found in what was read of it, and gone when something came after them", () => {
    const failures = new Failures(new Realm("own", new Memory()));
    failures.find([turnOf(1)], [FAILED]);
    expect(failures.last.value).toMatchObject({ name: "turn_9", isHere: false, code: "model_refused" });
    failures.find([turnOf(1)], [FAILED]);
    expect(failures.last.value).not.toBeNull();
    failures.find([turnOf(1), turnOf(10)], [FAILED]);
    expect(failures.last.value).toBeNull();
  });

  it("stay while what was on its way before them comes to its end", () => {
    const failures = new Failures(new Realm("own", new Memory()));
    failures.put(failed(ASKED, "queue_full", ""), ["turn_1", "turn_2"]);
    failures.find([turnOf(1), turnOf(2)], []);
    expect(failures.last.value).not.toBeNull();
    failures.find([turnOf(3)], []);
    expect(failures.last.value).toBeNull();
  });

  it("stay dismissed, also for who comes back later", () => {
    const realm = new Realm("own", new Memory());
    const failures = new Failures(realm);
    failures.put(failed(ASKED, "model_refused", ""), [null]);
    failures.dismiss();
    expect(failures.last.value).toBeNull();
    const later = new Failures(realm);
    later.find([], [FAILED]);
    expect(later.last.value).toBeNull();
    realm.set("dismissed failures", "{no list");
    later.find([], [FAILED]);
    expect(later.last.value?.name).toBe("turn_9");
  });
});
