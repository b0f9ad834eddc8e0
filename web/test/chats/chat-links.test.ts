import { afterEach, describe, expect, it } from "vitest";
import type { NewShare, Share } from "turnledger";
import { MemoryStorage } from "../../src/browser/storage";
import { ChatLinks } from "../../src/chats/chat-links";
import type { Session } from "../../src/session/session";
import { StorageScope } from "../../src/session/storage-scope";

const CHAT = "conv_1";

function shareOf(facts: Partial<Share>): Share {
  return { id: "share_0", kind: "chat", chat: CHAT, name: "", uses: 0, maxUses: null, revokedAt: null, expiresAt: null, ...facts } as Share;
}

/** A server with these links, the newest first. */
class LinkServer {
  problem: Error | null = null;
  #count = 0;

  constructor(public shares: Share[]) {}

  get session(): Session {
    const shares = {
      list: () => ({ all: () => this.#answer(() => [...this.shares]) }),
      create: (wish: NewShare) =>
        this.#answer(() => {
          const target = wish.chat === undefined ? { kind: "scope" as const, chat: null, scope: wish.scope! } : {};
          const share = shareOf({ id: `share_new_${++this.#count}`, name: wish.name ?? "", ...target });
          this.shares.unshift(share);
          return { ...share, code: "tls_secret", path: "/share#tls_secret" };
        }),
      revoke: (id: string) => this.#answer(() => (this.shares = this.shares.filter((each) => each.id !== id))),
    };
    const client = { shares, baseUrl: "https://chat.example.com" };
    return { client, storage: new StorageScope("own", new MemoryStorage()) } as unknown as Session;
  }

  async #answer<Done>(work: () => Done): Promise<Done> {
    if (this.problem) throw this.problem;
    return work();
  }
}

const opened: ChatLinks[] = [];

function open(server: LinkServer, scope = ""): ChatLinks {
  const links = new ChatLinks(server.session, { id: CHAT, scope });
  opened.push(links);
  return links;
}

function ids(links: ChatLinks): string[] | undefined {
  return links.links.value?.map(({ id }) => id);
}

afterEach(() => opened.splice(0).forEach((each) => each.close()));

describe("the links to a chat", () => {
  it("are those of this chat that are not revoked or expired", async () => {
    const other = shareOf({ id: "share_other", chat: "conv_2" });
    const ended = [shareOf({ id: "share_revoked", revokedAt: 1 }), shareOf({ id: "share_expired", expiresAt: 1 })];
    const usedUp = shareOf({ id: "share_used", maxUses: 1, uses: 1 });
    const links = open(new LinkServer([other, ...ended, usedUp, shareOf({ id: "share_open" })]));
    expect(links.links.value).toBeNull();
    await links.load();
    expect(ids(links)).toEqual(["share_used", "share_open"]);
  });

  it("have their address until they are revoked", async () => {
    const links = open(new LinkServer([]));
    await links.load();
    expect(await links.create("chat", { name: "Ann" })).toBe("https://chat.example.com/share#tls_secret");
    expect(links.created.value).toEqual({ id: "share_new_1", address: "https://chat.example.com/share#tls_secret" });
    expect(JSON.stringify(links.links.value)).not.toContain("tls_secret");
    await links.load();
    expect(links.created.value?.id).toBe("share_new_1");
    expect(await links.revoke("share_new_1")).toBe(true);
    expect([ids(links), links.created.value]).toEqual([[], null]);
  });

  it("are also those for guests in its scope, or for all chats without a scope", async () => {
    const server = new LinkServer([]);
    await open(server, "shop").create("scope", {});
    await open(server).create("scope", {});
    expect(server.shares.map(({ scope, chat }) => [scope, chat])).toEqual([["guests", null], ["shop", null]]);
    const [inShop, inNone] = [open(server, "shop"), open(server)];
    await Promise.all([inShop.load(), inNone.load()]);
    expect([ids(inShop), ids(inNone)]).toEqual([["share_new_1"], ["share_new_2"]]);
  });

  it("follow other tabs", async () => {
    const server = new LinkServer([]);
    const [links, elsewhere] = [open(server), open(server)];
    await Promise.all([links.load(), elsewhere.load()]);
    await elsewhere.create("chat", {});
    await expect.poll(() => ids(links)).toEqual(["share_new_1"]);
    expect(links.created.value).toBeNull();
    await links.revoke("share_new_1");
    await expect.poll(() => ids(elsewhere)).toEqual([]);
    expect(elsewhere.created.value).toBeNull();
  });

  it("stay as they are when a request fails, which is reported until one succeeds", async () => {
    const server = new LinkServer([shareOf({ id: "share_open" })]);
    const links = open(server);
    await links.load();
    server.problem = new Error("Limit of links reached.");
    expect(await links.create("chat", {})).toBeNull();
    expect(await links.revoke("share_open")).toBe(false);
    expect([ids(links), links.problem.value]).toEqual([["share_open"], "Limit of links reached."]);
    server.problem = null;
    await links.load();
    expect(links.problem.value).toBeNull();
  });
});
