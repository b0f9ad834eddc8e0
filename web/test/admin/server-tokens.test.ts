import { afterEach, describe, expect, it } from "vitest";
import type { NewToken, Token } from "turnledger";
import { ServerTokens } from "../../src/admin/server-tokens";
import { MemoryStorage } from "../../src/browser/storage";
import type { Session } from "../../src/session/session";
import { StorageScope } from "../../src/session/storage-scope";

function tokenOf(id: string, facts: Partial<Token> = {}): Token {
  return { id, owner: "ann", name: "", revokedAt: null, expiresAt: null, parent: null, ...facts } as Token;
}

/** A server with these tokens, the newest first, two in a page. */
class TokenServer {
  problem: Error | null = null;

  constructor(public tokens: Token[]) {}

  get session(): Session {
    const server = this;
    const tokens = {
      list: () => ({
        async *pages() {
          const all = [...server.tokens];
          for (let at = 0; at === 0 || at < all.length; at += 2) {
            if (server.problem) throw server.problem;
            yield { data: all.slice(at, at + 2), next: at + 2 < all.length ? "more" : null };
          }
        },
      }),
      create: async ({ owner }: NewToken) => {
        const token = tokenOf(`tok_${server.tokens.length}`, { owner: owner ?? "" });
        server.tokens.unshift(token);
        return { ...token, token: "tlt_secret" };
      },
      revoke: async (id: string) => {
        const gone = server.tokens.filter((each) => each.id === id || each.parent === id);
        server.tokens = server.tokens.filter((each) => !gone.includes(each));
        return gone;
      },
    };
    return { client: { tokens }, storage: new StorageScope("own", new MemoryStorage()) } as unknown as Session;
  }
}

const opened: ServerTokens[] = [];

function open(server: TokenServer): ServerTokens {
  const tokens = new ServerTokens(server.session);
  opened.push(tokens);
  return tokens;
}

function ids(tokens: ServerTokens): string[] | undefined {
  return tokens.tokens.value?.map(({ id }) => id);
}

afterEach(() => opened.splice(0).forEach((each) => each.close()));

describe("the tokens of the server", () => {
  it("are loaded page by page, without those that have ended", async () => {
    const ended = [tokenOf("revoked", { revokedAt: 1 }), tokenOf("expired", { expiresAt: 1 })];
    const tokens = open(new TokenServer([...ended, tokenOf("a"), ended[0]!, tokenOf("b", { expiresAt: 1e15 })]));
    expect(tokens.tokens.value).toBeNull();
    await tokens.load();
    expect([ids(tokens), tokens.hasMore.value]).toEqual([["a"], true]);
    await tokens.loadMore();
    expect([ids(tokens), tokens.hasMore.value]).toEqual([["a", "b"], false]);
  });

  it("show the text of a new one until it is revoked with its descendants", async () => {
    const tokens = open(new TokenServer([tokenOf("child", { parent: "tok_2" }), tokenOf("other")]));
    await tokens.load();
    expect(await tokens.create({ scopes: ["turns:run"], owner: "bob" })).toBe("tlt_secret");
    expect(tokens.created.value).toEqual({ id: "tok_2", text: "tlt_secret" });
    expect(JSON.stringify(tokens.tokens.value)).not.toContain("tlt_secret");
    expect(await tokens.revoke("tok_2")).toBe(2);
    expect([ids(tokens), tokens.created.value]).toEqual([["other"], null]);
  });

  it("report why a request failed, and stay", async () => {
    const server = new TokenServer([tokenOf("a")]);
    const tokens = open(server);
    await tokens.load();
    server.problem = new Error("The server is away.");
    await tokens.load();
    expect([ids(tokens), tokens.problem.value]).toEqual([["a"], "The server is away."]);
  });
});
