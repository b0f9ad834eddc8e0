import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { TRANSITIONS, type SignInKind } from "../../src/session/sign-in-state";
import { SignIn } from "../../src/session/sign-in";

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

describe("signing in", () => {
  it("can start again from every state", () => {
    const kinds = Object.keys(TRANSITIONS) as SignInKind[];
    for (const kind of kinds) expect(TRANSITIONS[kind]).toContain("checking");
    expect(kinds.filter((kind) => TRANSITIONS[kind].includes("signed in"))).toEqual(["checking", "signing in"]);
  });

  it("uses the stored token, and no other", async () => {
    localStorage.setItem(STORED, TOKEN);
    answers = () => json(ME);
    const signIn = new SignIn();
    void signIn.start();
    await settled();
    const state = signIn.state.value;
    expect([state.kind, asked]).toEqual(["signed in", [TOKEN]]);
    if (state.kind !== "signed in") return;
    signIn.signOut();
    expect([signIn.state.value.kind, localStorage.length]).toEqual(["signed out", 0]);
    await expect(state.session.client.tokens.own()).rejects.toThrow("signed out");
    expect(asked).toEqual([TOKEN]);
  });

  it("asks for a token, and checks its format before sending it", async () => {
    answers = (token) => (token === TOKEN ? json(ME) : refused(401, "missing_token"));
    const signIn = new SignIn();
    void signIn.start();
    await settled();
    expect(signIn.state.value).toEqual({ kind: "signed out", why: null, hasEnded: false, problem: null });
    await signIn.submitToken(TOKEN.slice(0, -1));
    expect(signIn.state.value).toMatchObject({ kind: "signed out", problem: expect.stringContaining("not a valid token") });
    expect(asked).toEqual([null]);
    void signIn.submitToken(` Bearer ${TOKEN}\n`);
    expect(signIn.state.value.kind).toBe("signing in");
    await settled();
    expect([signIn.state.value.kind, localStorage.getItem(STORED)]).toEqual(["signed in", TOKEN]);
    signIn.signOut();
  });

  it("reports an address that the server rejects", async () => {
    history.replaceState(null, "", "/?scope=%00");
    answers = () => refused(400, "invalid_input");
    const signIn = new SignIn();
    void signIn.start();
    await settled(60_000);
    expect(signIn.state.value).toMatchObject({ kind: "refused", why: "It is invalid_input." });
  });

  it("stores no rejected token", async () => {
    answers = (token) => refused(401, token === null ? "missing_token" : "invalid_token");
    const signIn = new SignIn();
    void signIn.start();
    await settled();
    void signIn.submitToken(TOKEN);
    await settled();
    expect(signIn.state.value).toMatchObject({ kind: "signed out", problem: "It is invalid_token." });
    expect(localStorage.length).toBe(0);
  });

  it("retries an unavailable server with growing pauses, and at once on request", async () => {
    answers = () => refused(503, "shutting_down");
    const signIn = new SignIn();
    void signIn.start();
    await settled();
    expect(signIn.state.value.kind).toBe("waiting");
    const first = asked.length;
    await settled(60_000);
    const many = asked.length;
    expect(many).toBeGreaterThan(first + 6);
    expect(many).toBeLessThan(first + 24);
    answers = () => json(ME);
    dispatchEvent(new Event("online"));
    await settled();
    expect([signIn.state.value.kind, asked.length]).toEqual(["signed in", many + 1]);
    signIn.signOut();
  });

  it("switches to a token from another tab, whatever was running", async () => {
    localStorage.setItem(STORED, TOKEN);
    let answerLate = (_: Response): void => {};
    answers = () => new Promise((resolve) => (answerLate = resolve));
    const signIn = new SignIn();
    void signIn.start();
    await settled(0);
    localStorage.removeItem(STORED);
    answers = () => refused(401, "missing_token");
    dispatchEvent(Object.assign(new Event("storage"), { key: STORED, storageArea: localStorage }));
    await settled();
    answerLate(json(ME));
    await settled();
    expect(signIn.state.value.kind).toBe("signed out");
  });

  it("notices that a token has expired", async () => {
    localStorage.setItem(STORED, TOKEN);
    answers = () => json({ ...ME, expires_at: Date.now() + 60_000 });
    const signIn = new SignIn();
    void signIn.start();
    await settled();
    answers = () => refused(401, "token_expired");
    await settled(30_000);
    expect(signIn.state.value.kind).toBe("signed in");
    await settled(31_000);
    expect(signIn.state.value).toMatchObject({ kind: "signed out", hasEnded: true, why: "It is token_expired." });
    expect(localStorage.getItem(STORED)).toBe(TOKEN);
  });
});
