import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Router } from "../../src/session/router";

const ONE = "conv_1";
let router: Router;

beforeEach(() => {
  history.replaceState(null, "", "/?embed=1");
  router = new Router(null);
});
afterEach(() => router.close());

describe("what is shown", () => {
  it("is named by the address, and names it", () => {
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

  it("is what the address has named meanwhile, and not where one would else begin", () => {
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

  it("is the one chat of who came by a link to it, whatever the address says", () => {
    history.replaceState(null, "", "#conv_2");
    const reader = new Router(ONE);
    expect(reader.route.value).toEqual({ kind: "chat", id: ONE });
    reader.close();
  });

  it("has no address where it is not kept", () => {
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

  it("is not left for another while it would be lost by it, unless somebody says so", () => {
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
