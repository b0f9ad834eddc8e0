import { beforeEach, describe, expect, it } from "vitest";
import { errors, type Client } from "turnledger";
import { ShareLink, takeLinkCode } from "../../src/session/share-link";

const CODE = "tls_00000doQjq9s04VqnFbW4EXCK7uzKTcPC22hubX";
const never = new AbortController().signal;
const kept = (): string => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]);

/** A server that answers so, and what it was asked. */
function server(answer: () => { token: string }): { client: Client; nonces: string[] } {
  const nonces: string[] = [];
  const exchange = async (code: string, { nonce }: { nonce: string }): Promise<{ token: string }> => {
    expect(code).toBe(CODE);
    nonces.push(nonce);
    return answer();
  };
  return { client: { shares: { exchange } } as unknown as Client, nonces };
}

const fails = (problem: Error) => (): never => {
  throw problem;
};

beforeEach(() => {
  localStorage.clear();
  sessionStorage.clear();
});

describe("the code in the address", () => {
  it("is removed from the address", () => {
    history.replaceState(null, "", `/share?embed=1#${CODE}`);
    expect([takeLinkCode(), location.hash, location.search, takeLinkCode()]).toEqual([CODE, "", "?embed=1", null]);
  });

  it.each(["", "#new", "#conv_1"])("is not %s", (fragment) => {
    history.replaceState(null, "", `/share${fragment}`);
    expect([takeLinkCode(), location.hash]).toEqual([null, fragment]);
  });
});

describe("a share link", () => {
  it("needs a complete code", () => {
    expect([CODE.slice(0, -1), "hello", null].map((code) => ShareLink.of(code))).toEqual([null, null, null]);
    expect(kept()).toBe("[{},{}]");
  });

  it("is one visit until it is answered, also after a reload", async () => {
    const away = server(fails(new errors.ServerUnavailable("server_unavailable", "Away.")));
    const link = ShareLink.of(CODE) as ShareLink;
    link.remember();
    await expect(link.exchange(away.client, never)).rejects.toThrow("Away.");
    const again = ShareLink.of(null) as ShareLink;
    const there = server(() => ({ token: "tlt_one" }));
    expect(await again.exchange(there.client, never)).toBe("tlt_one");
    expect(there.nonces).toEqual(away.nonces);
    expect(there.nonces[0]).toMatch(/^[A-Za-z0-9_-]{22,128}$/);
    expect(kept()).not.toContain(CODE);
    expect(kept()).not.toContain(there.nonces[0]);
    expect(await again.exchange(there.client, never)).toBe(null);
  });

  it("that is not valid is forgotten with its visit", async () => {
    const { client } = server(fails(new errors.LinkNotValid("link_not_valid", "No.")));
    const link = ShareLink.of(CODE) as ShareLink;
    link.remember();
    await expect(link.exchange(client, never)).rejects.toThrow("No.");
    link.forget();
    expect(kept()).toBe("[{},{}]");
  });

  it("is remembered by its tab, and by other tabs once it was accepted", () => {
    const link = ShareLink.of(CODE) as ShareLink;
    sessionStorage.setItem("turnledger page:link", "link-former");
    expect(link.previousSlot()).toBe("link-former");
    link.remember();
    expect(link.previousSlot()).toBe(null);
    sessionStorage.clear();
    expect(ShareLink.of(null)).toBe(null);
    link.accepted();
    expect(ShareLink.of(null)?.slot).toBe(`link-${CODE.slice(-6)}`);
  });
});
