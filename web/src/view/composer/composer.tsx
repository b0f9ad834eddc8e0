/** The composer: message field, model, stop and send. */

import "../../style/composer.css";
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Composer } from "../../composer/composer";
import { isShortcut, isTextField } from "../../composer/shortcuts";
import { safeText } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import type { Thread } from "../../thread/thread";
import { CloseIcon, SendIcon } from "../icons";
import { ModelPicker } from "./model-picker";
import { BusyPolicyPicker } from "./busy-policy-picker";
import { ShortcutsButton, ShortcutsPanel } from "./shortcuts-panel";
import { StopButton } from "./stop-button";
import { MessageField } from "./message-field";

export function ComposerView({ session, thread }: { session: Session; thread: Thread }) {
  // One form per chat: undo in one must not affect another.
  const composer = session.composers.of(thread);
  return <ComposerForm key={composer.number} session={session} composer={composer} />;
}

function ComposerForm({ session, composer }: { session: Session; composer: Composer }) {
  const writing = useRef<HTMLTextAreaElement>(null);
  const areKeysShown = useSignal(false);
  const goThere = (): void => writing.current?.focus();
  useKeys(session, goThere, areKeysShown);
  const isBusy = composer.isBusy.value;
  return (
    <form class="composer" aria-label="Your message" onSubmit={(event) => event.preventDefault()}>
      {areKeysShown.value && <ShortcutsPanel close={() => (areKeysShown.value = false)} />}
      <OfferedView composer={composer} taken={goThere} />
      {/* Above the box: it must not move buttons away from under a finger. */}
      <p id="composer-says" class="composer-says" role="status">
        <SaidOf composer={composer} />
      </p>
      {isBusy && composer.blockedReason.value === null && <BusyPolicyPicker policy={session.composers.policy} />}
      <div class="composer-box" onPointerDown={(event) => event.target === event.currentTarget && setTimeout(goThere)}>
        <MessageField composer={composer} field={writing} />
        <div class="composer-tools">
          <ModelPicker choice={composer.model} chosen={goThere} />
          <ShortcutsButton isOpen={areKeysShown} />
          <span class="composer-gap" />
          {isBusy && <StopButton composer={composer} stopped={goThere} />}
          <button
            // No form is submitted: a frame may forbid that.
            type="button"
            onClick={() => composer.send()}
            class="button primary icon-only composer-send"
            aria-label="Send"
            title="Send"
            aria-disabled={composer.canSend.value ? undefined : true}
            aria-describedby="composer-says"
            // Keep the focus in the field, and the keyboard of a phone open.
            onMouseDown={(event) => event.preventDefault()}
          >
            <SendIcon />
          </button>
        </div>
      </div>
    </form>
  );
}

function SaidOf({ composer }: { composer: Composer }) {
  const hindrance = composer.blockedReason.value;
  if (hindrance !== null) return <span class="bad-text">{hindrance}</span>;
  const waiting = composer.waiting.value.length;
  if (waiting === 1) return <>Your message waits for the models to be known.</>;
  if (waiting > 1) return <>{waiting} messages wait for the models to be known.</>;
  const gone = composer.model.gone.value;
  if (gone !== null) return <>{safeText(`${gone} is not there any more. ${composer.model.name.value} answers now.`)}</>;
  return composer.isTooLong.value ? <>Too long to be kept as a draft. It can be sent.</> : null;
}

function OfferedView({ composer, taken }: { composer: Composer; taken: () => void }) {
  const offered = composer.offered.value;
  if (offered === null) return null;
  return (
    <div class="composer-offered" role="group" aria-label="Message that was not answered">
      <span class="one-line" dir="auto">
        {offered}
      </span>
      <button
        type="button"
        class="button small"
        onClick={() => {
          composer.restoreOffered();
          taken();
        }}
      >
        Put it back
      </button>
      <button
        type="button"
        class="quiet-button small icon-only"
        aria-label="Do without it"
        title="Do without it"
        onClick={() => {
          composer.discardOffered();
          taken();
        }}
      >
        <CloseIcon />
      </button>
    </div>
  );
}

/** Global shortcuts; the list of chats has its own. */
function useKeys(session: Session, goThere: () => void, areKeysShown: Signal<boolean>): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      if (event.defaultPrevented) return;
      if (isShortcut("write", event)) goThere();
      else if (isShortcut("new", event)) session.router.openNew();
      else if (isShortcut("shortcuts", event) && !isTextField(event.target)) areKeysShown.value = !areKeysShown.value;
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}
