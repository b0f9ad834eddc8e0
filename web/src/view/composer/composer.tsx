/** The composer: message field, model, stop and send. */

import "../../style/composer.css";
import { useSignal, type Signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { releaseFocus } from "../../chats/open-chat";
import type { Composer } from "../../composer/composer";
import { isTextField } from "../../composer/shortcuts";
import { safeText } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import type { Thread } from "../../thread/thread";
import { CloseIcon, SendIcon } from "../icons";
import { ChatSettingsButton } from "./chat-settings-button";
import { ModelPicker } from "./model-picker";
import { BusyPolicyPicker } from "./busy-policy-picker";
import { ShortcutsButton, ShortcutsPanel } from "./shortcuts-panel";
import { StopButton } from "./stop-button";
import { MessageField } from "./message-field";
import { strings } from "../../strings";

export function ComposerView({ session, thread }: { session: Session; thread: Thread }) {
  if (!session.mayRun) {
    return (
      <div class="composer">
        <p class="composer-status" role="status">
          {strings.composer.readOnly}
        </p>
      </div>
    );
  }
  // One form per chat: undo in one must not affect another.
  const composer = session.composers.of(thread);
  return <ComposerForm key={composer.number} session={session} composer={composer} />;
}

function ComposerForm({ session, composer }: { session: Session; composer: Composer }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const isPanelOpen = useSignal(false);
  const focusField = (): void => field.current?.focus();
  useShortcuts(session, focusField, isPanelOpen);
  const isBusy = composer.isBusy.value;
  return (
    <form class="composer" aria-label={strings.composer.form} onSubmit={(event) => event.preventDefault()}>
      {isPanelOpen.value && <ShortcutsPanel settings={session.shortcuts} close={() => (isPanelOpen.value = false)} />}
      <OfferedView composer={composer} onDone={focusField} />
      {/* Above the box: it must not move buttons away from under a finger. */}
      <p id="composer-status" class="composer-status" role="status">
        <ComposerStatus composer={composer} />
      </p>
      {isBusy && composer.canSend.value && <BusyPolicyPicker policy={session.composers.policy} />}
      <div
        class="composer-box"
        onPointerDown={(event) => event.target === event.currentTarget && setTimeout(focusField)}
      >
        <MessageField composer={composer} shortcuts={session.shortcuts} field={field} />
        <div class="composer-tools">
          <ModelPicker choice={composer.model} onChoose={focusField} />
          <ChatSettingsButton session={session} thread={composer.thread} />
          <ShortcutsButton isOpen={isPanelOpen} />
          <span class="composer-gap" />
          {isBusy && <StopButton composer={composer} onStop={focusField} />}
          <button
            // No form is submitted: a frame may forbid that.
            type="button"
            onClick={() => composer.send()}
            class="button primary icon-only composer-send"
            aria-label={strings.common.send}
            title={strings.common.send}
            aria-disabled={composer.canSend.value ? undefined : true}
            aria-describedby="composer-status"
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

function ComposerStatus({ composer }: { composer: Composer }) {
  const reason = composer.blockedReason.value;
  if (reason !== null) return <span class="bad-text">{reason}</span>;
  const waiting = composer.waiting.value.length;
  if (waiting > 0) return <>{strings.composer.waitingToLoad(waiting)}</>;
  const gone = composer.model.gone.value;
  if (gone !== null) return <>{safeText(strings.composer.modelGone(gone, composer.model.name.value))}</>;
  return composer.isTooLong.value ? <>{strings.composer.tooLongForDraft}</> : null;
}

function OfferedView({ composer, onDone }: { composer: Composer; onDone: () => void }) {
  const offered = composer.offered.value;
  if (offered === null) return null;
  return (
    <div class="composer-offered" role="group" aria-label={strings.composer.unanswered}>
      <span class="one-line" dir="auto">
        {offered}
      </span>
      <button
        type="button"
        class="button small"
        onClick={() => {
          composer.restoreOffered();
          onDone();
        }}
      >
        {strings.composer.restore}
      </button>
      <button
        type="button"
        class="quiet-button small icon-only"
        aria-label={strings.composer.discard}
        title={strings.composer.discard}
        onClick={() => {
          composer.discardOffered();
          onDone();
        }}
      >
        <CloseIcon />
      </button>
    </div>
  );
}

/** Global shortcuts; the list of chats has its own. */
function useShortcuts(session: Session, focusField: () => void, isPanelOpen: Signal<boolean>): void {
  const { shortcuts } = session;
  // Before the next key: those of the chat before are gone.
  useLayoutEffect(() => {
    // In a text field, a sign is text.
    const isPanelKey = (event: KeyboardEvent): boolean =>
      shortcuts.isPressed("shortcuts", event) && (event.ctrlKey || event.metaKey || !isTextField(event.target));
    const pressed = (event: KeyboardEvent): void => {
      if (event.defaultPrevented) return;
      if (shortcuts.isPressed("write", event)) focusField();
      else if (shortcuts.isPressed("new", event)) {
        releaseFocus();
        session.router.openNew();
      } else if (isPanelKey(event)) isPanelOpen.value = !isPanelOpen.value;
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}
