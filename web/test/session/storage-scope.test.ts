import { describe, expect, it } from "vitest";
import { Outbox } from "turnledger/outbox";
import { isOfPlace, isOfRealm, Memory, Realm, realmName } from "../../src/session/storage-scope";

const MESSAGE = { idempotencyKey: "one", baseUrl: "http://here", body: "{}", headers: {} };

describe("a realm", () => {
  it("keeps what is given to it, under its own name", () => {
    const storage = new Memory();
    const [mine, other] = [new Realm("own.abc", storage), new Realm("own.abcd", storage)];
    expect(mine.set("draft conv_1", "Dear")).toBe(true);
    expect([mine.get("draft conv_1"), other.get("draft conv_1")]).toEqual(["Dear", null]);
    expect([mine.names("draft "), other.names()]).toEqual([["draft conv_1"], []]);
    mine.set("draft conv_1", null);
    expect(storage.length).toBe(0);
  });

  it("forgets everything, unsent messages included, and nothing of another", () => {
    const storage = new Memory();
    const realms = [new Realm("own.abc", storage), new Realm("own.abcd", storage)] as const;
    for (const realm of realms) {
      realm.set("model", "demo");
      new Outbox(realm.storage, realm.sender).record(MESSAGE);
    }
    realms[0].wipe();
    expect(realms.map((realm) => realm.names())).toEqual([[], ["model"]]);
    expect(realms.map((realm) => new Outbox(realm.storage, realm.sender).pending().length)).toEqual([0, 1]);
  });

  it("takes nothing from whoever comes when it is closed", () => {
    const storage = new Memory();
    const realm = new Realm("own.abc", storage);
    realm.set("model", "demo");
    realm.close();
    expect([realm.isClosed, realm.set("draft", "late")]).toEqual([true, false]);
    expect([realm.get("model"), realm.names()]).toEqual([null, []]);
    expect(() => new Outbox(realm.storage, realm.sender).record(MESSAGE)).toThrow("No room");
    expect(storage.length).toBe(1);
  });

  it("says that a full storage has kept nothing", () => {
    const full = Object.assign(new Memory(), {
      setItem: () => {
        throw new Error("full");
      },
    });
    expect(new Realm("own.abc", full).set("draft", "long")).toBe(false);
  });
});

describe("the names of what is written down", () => {
  it("tell the place and the realm", () => {
    const storage = new Memory();
    const name = realmName("own", "abc");
    const realm = new Realm(name, storage);
    realm.set("model", "demo");
    new Outbox(realm.storage, realm.sender).record(MESSAGE);
    const names = [storage.key(0), storage.key(1)] as string[];
    expect(names.map((each) => isOfPlace(each, "own"))).toEqual([true, true]);
    expect(names.map((each) => isOfRealm(each, name))).toEqual([true, true]);
    expect(names.map((each) => isOfRealm(each, realmName("own", "abcd")))).toEqual([false, false]);
    expect(names.map((each) => isOfPlace(each, "owner"))).toEqual([false, false]);
    expect(isOfPlace("turnledger page:own:token", "own")).toBe(true);
    expect(isOfPlace("somebody else's", "own")).toBe(false);
  });
});
