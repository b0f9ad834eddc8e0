import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Place } from "../../src/session/router";

const ONE = "conv_1";
let place: Place;

beforeEach(() => {
  history.replaceState(null, "", "/?embed=1");
  place = new Place(null);
});
afterEach(() => place.close());

describe("what is shown", () => {
  it("is named by the address, and names it", () => {
    expect(place.where.value).toBe(null);
    place.begin(ONE);
    expect(place.where.value).toEqual({ kind: "chat", id: ONE });
    expect([location.hash, location.search]).toEqual([`#${ONE}`, "?embed=1"]);
    place.openNew();
    expect([place.where.value?.kind, location.hash]).toEqual(["new", "#new"]);
    const first = place.where.value;
    place.openNew();
    expect(place.where.value).not.toEqual(first);
  });

  it("is what the address has named meanwhile, and not where one would else begin", () => {
    history.replaceState(null, "", "#conv_2"); // as a link does, of which the browser has not told yet
    place.begin(ONE);
    expect([place.where.value, location.hash]).toEqual([{ kind: "chat", id: "conv_2" }, "#conv_2"]);
  });

  it("is the one chat of who came by a link to it, whatever the address says", () => {
    history.replaceState(null, "", "#conv_2");
    const reader = new Place(ONE);
    expect(reader.where.value).toEqual({ kind: "chat", id: ONE });
    reader.close();
  });

  it("has no address where it is not kept", () => {
    place.begin(ONE);
    place.openUnkept();
    expect([place.where.value?.kind, location.hash, location.search]).toEqual(["unkept", "", "?embed=1"]);
    const forgetful = new Place(null, false);
    forgetful.begin(null);
    expect(forgetful.where.value?.kind).toBe("unkept");
    forgetful.openNew();
    expect([forgetful.where.value?.kind, location.hash]).toEqual(["unkept", ""]);
    forgetful.close();
  });

  it("is not left for another while it would be lost by it, unless somebody says so", () => {
    let isHeld = true;
    place.openUnkept();
    const here = place.where.value;
    place.isHeld = () => isHeld;
    place.open(ONE);
    expect([place.where.value, place.leaving.value]).toEqual([here, { kind: "chat", id: ONE }]);
    place.stay();
    expect([place.where.value, place.leaving.value]).toEqual([here, null]);
    place.leave();
    expect(place.where.value).toEqual(here);
    place.open(ONE);
    place.leave();
    expect([place.where.value, place.leaving.value]).toEqual([{ kind: "chat", id: ONE }, null]);
    expect(location.hash).toBe(`#${ONE}`);
    isHeld = false;
    place.openNew();
    expect(place.where.value?.kind).toBe("new");
  });
});
