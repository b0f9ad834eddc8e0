import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Router } from "../../src/session/router";

const ONE = "conv_1";
let router: Router;

beforeEach(() => {
  history.replaceState(null, "", "/?embed=1");
  router = new Router(null);
});
afterEach(() => router.close());

describe("the route", () => {
  it("follows the address, and sets it", () => {
    expect(router.route.value).toBe(null);
    router.start(ONE);
    expect(router.route.value).toEqual({ kind: "chat", id: ONE });
    expect([location.hash, location.search]).toEqual([`#${ONE}`, "?embed=1"]);
    router.openNew();
    expect([router.route.value?.kind, location.hash]).toEqual(["new", "#new"]);
    const first = router.route.value;
    router.openNew();
    expect(router.route.value).not.toEqual(first);
  });

  it("is the one that the address names by then, not the first chat", () => {
    history.replaceState(null, "", "#conv_2"); // as a link does, of which the browser has not told yet
    router.start(ONE);
    expect([router.route.value, location.hash]).toEqual([{ kind: "chat", id: "conv_2" }, "#conv_2"]);
  });

  it("is another new chat if #new is entered after the first one was created", () => {
    router.openNew();
    const first = router.route.value;
    router.chatCreated(ONE);
    expect(location.hash).toBe(`#${ONE}`);
    history.replaceState(null, "", "#new");
    dispatchEvent(new Event("hashchange"));
    expect([router.route.value?.kind, location.hash]).toEqual(["new", "#new"]);
    expect(router.route.value).not.toEqual(first);
  });

  it("is the shared chat of a reader, whatever the address names", () => {
    history.replaceState(null, "", "#conv_2");
    const reader = new Router(ONE);
    expect(reader.route.value).toEqual({ kind: "chat", id: ONE });
    reader.close();
  });

  it("has no address for a temporary chat", () => {
    router.start(ONE);
    router.openUnkept();
    expect([router.route.value?.kind, location.hash, location.search]).toEqual(["unkept", "", "?embed=1"]);
    const forgetful = new Router(null, false);
    forgetful.start(null);
    expect(forgetful.route.value?.kind).toBe("unkept");
    forgetful.openNew();
    expect([forgetful.route.value?.kind, location.hash]).toEqual(["unkept", ""]);
    forgetful.close();
  });

  it("waits for confirmation before it loses turns", () => {
    let isHeld = true;
    router.openUnkept();
    const here = router.route.value;
    router.wouldLose = () => isHeld;
    router.open(ONE);
    expect([router.route.value, router.leaving.value]).toEqual([here, { kind: "chat", id: ONE }]);
    router.stay();
    expect([router.route.value, router.leaving.value]).toEqual([here, null]);
    router.leave();
    expect(router.route.value).toEqual(here);
    router.open(ONE);
    router.leave();
    expect([router.route.value, router.leaving.value]).toEqual([{ kind: "chat", id: ONE }, null]);
    expect(location.hash).toBe(`#${ONE}`);
    isHeld = false;
    router.openNew();
    expect(router.route.value?.kind).toBe("new");
  });
});
