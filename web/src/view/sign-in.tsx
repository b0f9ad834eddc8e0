/** The page of a user who is not signed in: a form, a reason, or a retry. */

import { useId, useLayoutEffect, useRef } from "preact/hooks";
import "../style/sign-in.css";
import type { SignInState } from "../session/sign-in-state";
import type { SignIn } from "../session/sign-in";
import { withCode } from "./markdown/code-words";
import { Mark } from "./icons";
import { strings } from "../strings";

type NotSignedIn = Exclude<SignInState, { kind: "signed in" }>;
type SignedOut = Extract<SignInState, { kind: "signed out" | "signing in" }>;

export function SignInView({ signIn, state }: { signIn: SignIn; state: NotSignedIn }) {
  const waiting = useRef<NotSignedIn>(state);
  if (state.kind !== "checking") waiting.current = state;
  // During a retry the view stays: it is not announced again, and the button keeps the focus.
  const shown = waiting.current.kind === "waiting" ? waiting.current : state;
  switch (shown.kind) {
    case "checking":
      return <main class="sign-in" aria-busy="true" aria-label={strings.common.loading} />;
    case "waiting":
      return <WaitingView title={shown.title} why={shown.why} retry={() => signIn.retry()} />;
    case "refused":
      return (
        <main class="sign-in">
          <Product />
          <div class="sign-in-card" role="alert">
            <h1>{shown.title}</h1>
            <p>{shown.why}</p>
          </div>
        </main>
      );
    default:
      return <TokenForm signIn={signIn} state={shown} />;
  }
}

function Product() {
  return (
    <p class="product">
      <Mark size={32} />
      {strings.product}
    </p>
  );
}

function WaitingView({ title, why, retry }: { title: string; why: string; retry: () => void }) {
  return (
    <main class="sign-in">
      <Product />
      <div class="sign-in-card">
        <div role="alert">
          <h1>{title}</h1>
          <p>{strings.signIn.retrying}</p>
        </div>
        <p class="sign-in-detail" dir="auto">
          {why}
        </p>
        <button type="button" class="button primary" onClick={retry}>
          {strings.common.tryAgain}
        </button>
      </div>
    </main>
  );
}

function TokenForm({ signIn, state }: { signIn: SignIn; state: SignedOut }) {
  const field = useRef<HTMLInputElement>(null);
  const names = { field: useId(), hint: useId(), problem: useId() };
  const isBusy = state.kind === "signing in";
  const { why = null, hasEnded = false, problem = null } = state.kind === "signed out" ? state : {};
  const submit = (): void => void signIn.submitToken(field.current?.value ?? "");
  // Before the next key.
  useLayoutEffect(() => {
    // In a frame, the embedding page decides about the focus.
    if (!isBusy && window.top === window) field.current?.focus();
  }, [isBusy]);
  return (
    <main class="sign-in">
      <Product />
      {/* No form is submitted: a frame may forbid that. */}
      <form class="sign-in-card" aria-busy={isBusy} onSubmit={(event) => event.preventDefault()}>
        <h1>{hasEnded ? strings.signIn.accessEnded : strings.signIn.title}</h1>
        {why !== null && <p role="alert">{why}</p>}
        <label for={names.field}>{strings.signIn.token}</label>
        <input
          ref={field}
          id={names.field}
          class="field"
          type="password"
          autocomplete="current-password"
          autocapitalize="off"
          spellcheck={false}
          placeholder={strings.signIn.tokenPlaceholder}
          disabled={isBusy}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.isComposing) return;
            event.preventDefault();
            submit();
          }}
          aria-invalid={problem !== null}
          aria-describedby={problem === null ? names.hint : names.problem}
        />
        {problem !== null && (
          <p id={names.problem} class="sign-in-problem" role="alert">
            {problem}
          </p>
        )}
        <p id={names.hint} class="sign-in-detail">
          {withCode(strings.signIn.hint)}
        </p>
        <div class="sign-in-actions">
          <button type="button" class="button primary" disabled={isBusy} onClick={submit}>
            {isBusy ? strings.signIn.submitting : strings.signIn.submit}
          </button>
          {hasEnded && (
            <button type="button" class="quiet-button" onClick={() => signIn.signOut()}>
              {strings.signIn.clearData}
            </button>
          )}
        </div>
      </form>
    </main>
  );
}
