import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { MOVES, type ArrivalKind } from "../../src/session/sign-in-state";
import { Arriving } from "../../src/session/sign-in";

const TOKEN = "tlt_000004yYLDbBbvYq4owUA9tjl6Cu89Dgw3i4j7A";
const STORED = "turnledger page:own:token";
const ME = { id: "tok_1", owner: "ann", scopes: ["chats:read"], chat: null, expires_at: null, share: null };

type Answers = (token: string | null) => Response | Promise<Response>;
let answers: Answers;
let asked: (string | null)[] = [];

const json = (said: object, status = 200): Response =>
  new Response(JSON.stringify(said), { status, headers: { "content-type": "application/json" } });
const refused = (status: number, code: string): Response =>
  json({ error: { code, message: `It is ${code}.`, type: "authentication_error" } }, status);

beforeEach(() => {
  localStorage.clear();
  history.replaceState(null, "", "/");
  asked = [];
  vi.useFakeTimers();
  vi.stubGlobal("fetch", async (url: string, { headers }: { headers: Record<string, string> }) => {
    if (!url.split("?")[0]?.endsWith("/api/tokens/self")) return new Promise(() => {});
    const token = headers["authorization"]?.replace("Bearer ", "") ?? null;
    asked.push(token);
    return answers(token);
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** Let what is under way come to its end. */
const settled = async (milliseconds = 500): Promise<void> => {
  await vi.advanceTimersByTimeAsync(milliseconds);
};

describe("arriving", () => {
  it("begins anew from wherever somebody is", () => {
    const kinds = Object.keys(MOVES) as ArrivalKind[];
    for (const kind of kinds) expect(MOVES[kind]).toContain("arriving");
    expect(kinds.filter((kind) => MOVES[kind].includes("in"))).toEqual(["arriving", "signing in"]);
  });

  it("lets in who has a token from before, with that and no other", async () => {
    localStorage.setItem(STORED, TOKEN);
    answers = () => json(ME);
    const arriving = new Arriving();
    void arriving.arrive();
    await settled();
    const arrival = arriving.arrival.value;
    expect([arrival.kind, asked]).toEqual(["in", [TOKEN]]);
    if (arrival.kind !== "in") return;
    arriving.signOut();
    expect([arriving.arrival.value.kind, localStorage.length]).toEqual(["out", 0]);
    await expect(arrival.session.client.tokens.own()).rejects.toThrow("signed out");
    expect(asked).toEqual([TOKEN]);
  });

  it("asks for a token where one is needed, and looks at what is given before it asks with it", async () => {
    answers = (token) => (token === TOKEN ? json(ME) : refused(401, "missing_token"));
    const arriving = new Arriving();
    void arriving.arrive();
    await settled();
    expect(arriving.arrival.value).toEqual({ kind: "out", why: null, hasEnded: false, problem: null });
    await arriving.signIn(TOKEN.slice(0, -1));
    expect(arriving.arrival.value).toMatchObject({ kind: "out", problem: expect.stringContaining("not a token") });
    expect(asked).toEqual([null]);
    void arriving.signIn(` Bearer ${TOKEN}\n`);
    expect(arriving.arrival.value.kind).toBe("signing in");
    await settled();
    expect([arriving.arrival.value.kind, localStorage.getItem(STORED)]).toEqual(["in", TOKEN]);
    arriving.signOut();
  });

  it("says what is wrong with an address that no server takes, and stays there", async () => {
    history.replaceState(null, "", "/?scope=%00");
    answers = () => refused(400, "invalid_input");
    const arriving = new Arriving();
    void arriving.arrive();
    await settled(60_000);
    expect(arriving.arrival.value).toMatchObject({ kind: "refused", why: "It is invalid_input." });
  });

  it("keeps nothing of a token that is not good", async () => {
    answers = (token) => refused(401, token === null ? "missing_token" : "invalid_token");
    const arriving = new Arriving();
    void arriving.arrive();
    await settled();
    void arriving.signIn(TOKEN);
    await settled();
    expect(arriving.arrival.value).toMatchObject({ kind: "out", problem: "It is invalid_token." });
    expect(localStorage.length).toBe(0);
  });

  it("asks a server that is away again and again, ever more slowly, and at once when somebody says so", async () => {
    answers = () => refused(503, "shutting_down");
    const arriving = new Arriving();
    void arriving.arrive();
    await settled();
    expect(arriving.arrival.value.kind).toBe("waiting");
    const first = asked.length;
    await settled(60_000);
    const many = asked.length;
    expect(many).toBeGreaterThan(first + 6);
    expect(many).toBeLessThan(first + 24);
    answers = () => json(ME);
    dispatchEvent(new Event("online"));
    await settled();
    expect([arriving.arrival.value.kind, asked.length]).toEqual(["in", many + 1]);
    arriving.signOut();
  });

  it("goes with another token that another tab has put there, whatever was on its way", async () => {
    localStorage.setItem(STORED, TOKEN);
    let answerLate = (_: Response): void => {};
    answers = () => new Promise((resolve) => (answerLate = resolve));
    const arriving = new Arriving();
    void arriving.arrive();
    await settled(0);
    localStorage.removeItem(STORED);
    answers = () => refused(401, "missing_token");
    dispatchEvent(Object.assign(new Event("storage"), { key: STORED, storageArea: localStorage }));
    await settled();
    answerLate(json(ME));
    await settled();
    expect(arriving.arrival.value.kind).toBe("out");
  });

  it("finds out that a token has expired though nobody says so", async () => {
    localStorage.setItem(STORED, TOKEN);
    answers = () => json({ ...ME, expires_at: Date.now() + 60_000 });
    const arriving = new Arriving();
    void arriving.arrive();
    await settled();
    answers = () => refused(401, "token_expired");
    await settled(30_000);
    expect(arriving.arrival.value.kind).toBe("in");
    await settled(31_000);
    expect(arriving.arrival.value).toMatchObject({ kind: "out", hasEnded: true, why: "It is token_expired." });
    expect(localStorage.getItem(STORED)).toBe(TOKEN);
  });
});
