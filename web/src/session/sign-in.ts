/** Sign in with the code of a share link, with a stored token, with one that the user enters, or without one where none
 * is needed; and sign out. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { Client, errors, TurnledgerError } from "turnledger";
import { Outbox } from "turnledger/outbox";
import { TRANSITIONS, type SignInState } from "./sign-in-state";
import { Credential, OWN_SLOT } from "./credential";
import { errorText } from "./notices";
import { MemoryStorage } from "../browser/storage";
import { StorageScope } from "./storage-scope";
import { isToken } from "./token-format";
import { isAccessRevoked, Session, type Me } from "./session";
import { ShareLink, takeLinkCode } from "./share-link";
import { strings } from "../strings";

/** Milliseconds before an automatic retry, doubled each time. */
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 15_000;
/** Longer timers would fire at once. */
const LONGEST_TIMER = 2 ** 31 - 1;

export class SignIn {
  readonly #state = signal<SignInState>({ kind: "checking" });
  /** Whether this is the page that share links open. */
  readonly isShareLink = location.pathname.endsWith("/share");
  readonly #base = new URL(".", location.href).href;
  #link: ShareLink | null = null;
  #isLinkIncomplete = false;
  #credential: Credential | null = null;
  /** Aborts the work of a credential when it is replaced. */
  #step = new AbortController();
  #pause = FIRST_PAUSE;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** The constructor removes the link code from the address. */
  constructor() {
    if (this.isShareLink) this.#openLink(takeLinkCode(), true);
    else this.#credential = new Credential(OWN_SLOT, () => this.#credentialReplaced());
    addEventListener("hashchange", () => this.#openAnotherLink());
    addEventListener("online", () => this.retry());
  }

  get state(): ReadonlySignal<SignInState> {
    return this.#state;
  }

  /** The storage of the stored token, before the server has accepted it. */
  get storage(): StorageScope {
    return this.#credential?.storage() ?? new StorageScope("nowhere", new MemoryStorage());
  }

  /** Sign in with the stored token, with the share link, or without a token. */
  async start(): Promise<void> {
    const { signal: ending } = this.#begin();
    const credential = this.#credential;
    if (credential === null) return this.#refuse(strings.visit.nothingHere, this.#noLink());
    try {
      if (await this.#tryToken(credential, credential.token, ending)) return;
      const token = await this.#link?.exchange(this.#probeClient(null), ending);
      if (ending.aborted) return;
      if (token == null) return this.#refuse(strings.visit.nothingHere, strings.visit.noLink);
      credential.replace(token);
      await this.#tryToken(credential, token, ending);
    } catch (problem) {
      if (!ending.aborted) this.#failed(problem);
    }
  }

  /** Sign in with a token that the user enters. The former token and its data are removed once the server accepts it.
   * */
  async submitToken(input: string): Promise<void> {
    const text = input.trim().replace(/^bearer\s+/i, "");
    const before = this.#state.value;
    if (before.kind !== "signed out" || this.#credential === null) return;
    if (!isToken(text)) return this.#move({ ...before, problem: strings.signIn.invalidToken });
    const { signal: ending } = this.#begin({ kind: "signing in" });
    try {
      const me = await this.#identify(text, ending);
      if (ending.aborted) return;
      if (this.#credential.token !== text) this.#credential.replace(text);
      this.#enter(this.#credential, text, me);
    } catch (problem) {
      if (!ending.aborted) this.#move({ ...before, problem: errorText(problem) });
    }
  }

  signOut(): void {
    this.#begin();
    this.#credential?.replace(null);
    clearAddress();
    if (this.#link) this.#endVisit(strings.visit.left, strings.visit.noLink);
    else this.#move({ kind: "signed out", why: null, hasEnded: false, problem: null });
  }

  retry(): void {
    if (this.#state.value.kind === "waiting") void this.start();
  }

  /** Try a token. Returns whether it is valid; if not, a share link may provide another. */
  async #tryToken(credential: Credential, token: string | null, ending: AbortSignal): Promise<boolean> {
    if (this.#link && token === null) return false;
    try {
      const me = await this.#identify(token, ending);
      if (!ending.aborted) this.#enter(credential, token, me);
      return true;
    } catch (problem) {
      if (!this.#link || !isAccessRevoked(problem) || ending.aborted) throw problem;
      credential.replace(null);
      return false;
    }
  }

  #enter(credential: Credential, token: string | null, me: Me): void {
    const storage = credential.storage();
    const outbox = new Outbox(storage.backend, storage.sender);
    // The client uses this token only, while this session lasts: late requests belong to the former one.
    const apiKey = (): string => {
      if (storage.isClosed) throw new errors.NotAdmitted("signed_out", strings.account.signedOut);
      return token ?? "";
    };
    const onConnection = (isLost: boolean): void => session.noteConnection(isLost);
    const client = new Client(this.#base, { apiKey, outbox, onConnection, allowHttp: true });
    const onRevoked = (problem: unknown): void => this.#accessRevoked(session, problem);
    const controls = { apiKey, signOut: () => this.signOut() };
    const session: Session = new Session(client, outbox, storage, me, onRevoked, controls);
    this.#pause = FIRST_PAUSE;
    this.#link?.accepted();
    this.#move({ kind: "signed in", session });
    this.#watchExpiry(session);
  }

  /** Identify the caller, in the scope that the address names if it is allowed there. */
  async #identify(token: string | null, ending: AbortSignal): Promise<Me> {
    const scope = new URLSearchParams(location.search).get("scope");
    const { tokens } = this.#probeClient(token);
    if (!scope) return tokens.own({ signal: ending });
    return tokens.own({ scope, signal: ending }).catch((problem: unknown) => {
      if (isAccessRevoked(problem) || !(problem instanceof errors.NotAdmitted)) throw problem;
      return tokens.own({ signal: ending });
    });
  }

  /** A client without retries: the sign-in flow decides how long to wait for a server. */
  #probeClient(token: string | null): Client {
    return new Client(this.#base, { apiKey: token ?? "", retries: { times: 1 }, allowHttp: true });
  }

  /** Abort running work, and begin again. */
  #begin(state: SignInState = { kind: "checking" }): AbortController {
    clearTimeout(this.#timer);
    this.#step.abort();
    this.#step = new AbortController();
    const { value: before } = this.#state;
    if (before.kind === "signed in") before.session.close();
    if (before.kind !== "checking" || state.kind !== "checking") this.#move(state);
    return this.#step;
  }

  #move(state: SignInState): void {
    const { kind } = this.#state.value;
    if (!TRANSITIONS[kind].includes(state.kind)) throw new Error(`No transition from "${kind}" to "${state.kind}".`);
    this.#state.value = state;
  }

  /** Signing in failed: ask for a token, wait and retry, or give up. */
  #failed(problem: unknown): void {
    if (problem instanceof errors.LinkNotValid) {
      return this.#endVisit(strings.visit.brokenLink, strings.visit.invalidLink);
    }
    if (problem instanceof errors.NotAdmitted && !this.#link) return this.#askForToken(problem);
    const { status = null, retryAfter = null } = problem instanceof TurnledgerError ? problem : {};
    // The address names something invalid, such as a scope.
    if (status === 400) return this.#refuse(strings.signIn.invalidAddress, errorText(problem));
    const title = status === 429 ? strings.signIn.serverCrowded : strings.signIn.serverAway;
    this.#move({ kind: "waiting", title, why: errorText(problem) });
    this.#timer = setTimeout(() => this.retry(), Math.max(retryAfter ?? 0, this.#pause));
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }

  #noLink(): string {
    return this.#isLinkIncomplete ? strings.visit.incompleteLink : strings.visit.noLink;
  }

  #refuse(title: string, why: string): void {
    this.#move({ kind: "refused", title, why });
  }

  /** The server has revoked access. */
  #accessRevoked(session: Session, problem: unknown): void {
    const { value: now } = this.#state;
    if (now.kind !== "signed in" || now.session !== session) return;
    this.#begin();
    if (this.#link) {
      this.#credential?.replace(null);
      this.#endVisit(strings.visit.ended, strings.visit.accessEnded);
    } else this.#askForToken(problem);
  }

  /** Ask for a token. One that was valid before has ended. */
  #askForToken(problem: unknown): void {
    const hasEnded = this.#credential?.token != null;
    this.#move({ kind: "signed out", why: hasEnded ? errorText(problem) : null, hasEnded, problem: null });
  }

  #endVisit(title: string, why: string): void {
    this.#link?.forget();
    clearAddress();
    this.#refuse(title, why);
  }

  /** Another tab has replaced or removed the token of this slot. */
  #credentialReplaced(): void {
    this.#begin();
    clearAddress();
    void this.start();
  }

  /** Opening another link in this tab only changes the address, and loads no page. */
  #openAnotherLink(): void {
    const code = this.isShareLink ? takeLinkCode() : null;
    if (code === null) return;
    this.#begin();
    this.#openLink(code, false);
    void this.start();
  }

  #openLink(code: string | null, isFirst: boolean): void {
    this.#credential?.close();
    this.#credential = null;
    const former = this.#link?.slot ?? null;
    const link = (this.#link = ShareLink.of(code));
    this.#isLinkIncomplete = code !== null;
    if (link === null) return;
    const left = isFirst ? link.previousSlot() : former;
    if (left !== null && left !== link.slot) forgetSlot(left);
    link.remember();
    this.#credential = new Credential(link.slot, () => this.#credentialReplaced());
  }

  /** A stream ends with its token, but not every page has one open. */
  #watchExpiry(session: Session): void {
    const { expiresAt } = session.me;
    if (expiresAt == null) return;
    const { signal: ending } = this.#step;
    const check = async (pause: number): Promise<void> => {
      try {
        await session.client.tokens.own({ signal: ending });
      } catch (problem) {
        if (isAccessRevoked(problem)) return this.#accessRevoked(session, problem);
      }
      // The clocks differ, or the server is unavailable.
      if (!ending.aborted) this.#timer = setTimeout(() => void check(Math.min(pause * 2, LONGEST_PAUSE)), pause);
    };
    const left = Math.min(Math.max(expiresAt - Date.now(), 0), LONGEST_TIMER);
    this.#timer = setTimeout(() => void check(FIRST_PAUSE), left);
  }
}

/** Forget the credential of a link that this tab no longer shows. */
function forgetSlot(slot: string): void {
  const credential = new Credential(slot, () => {});
  credential.replace(null);
  credential.close();
}

/** The address belongs to the former credential. */
function clearAddress(): void {
  history.replaceState(null, "", location.pathname + location.search);
}
