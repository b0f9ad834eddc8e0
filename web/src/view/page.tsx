/** The page: the sign-in view, or the chats of a signed-in user. */

import { useEffect, useMemo } from "preact/hooks";
import type { SignIn } from "../session/sign-in";
import { addressOptions } from "./address-options";
import { ErrorBoundary } from "./error-boundary";
import { Language } from "../strings/language";
import { LayoutView } from "./layout";
import { SignInView } from "./sign-in";
import { Theme } from "./theme";
import { strings } from "../strings";

export function PageView({ signIn }: { signIn: SignIn }) {
  const state = signIn.state.value;
  const session = state.kind === "signed in" ? state.session : null;
  // Known before the server answers, so that the page does not flash in the wrong theme.
  const theme = useMemo(() => {
    const { theme: first, variables } = addressOptions();
    return new Theme(session?.storage ?? signIn.storage, first, variables);
  }, [session]);
  useEffect(() => () => theme.close(), [theme]);
  const language = useMemo(() => new Language(session?.storage ?? signIn.storage), [session]);
  useEffect(() => () => language.close(), [language]);
  if (state.kind !== "signed in") return <SignInView signIn={signIn} state={state} />;
  return (
    <ErrorBoundary subject={strings.crash.page}>
      {/* Another credential is another page: no view keeps its state. */}
      <LayoutView key={state.session.storage.name} session={state.session} theme={theme} language={language} />
    </ErrorBoundary>
  );
}
