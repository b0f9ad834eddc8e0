/** The button that shows and changes instructions and parameters of the chat. */

import type { Session } from "../../session/session";
import type { ChatSettings } from "../../chats/chat-settings";
import type { Thread } from "../../thread/thread";
import { InstructionsIcon } from "../icons";
import { strings } from "../../strings";

/** Null if there are none, and the user may not set any. */
export function ChatSettingsButton({ session, thread }: { session: Session; thread: Thread }) {
  const summary = summaryOf(thread.settings.value);
  if (summary === "" && !mayChangeSettings(session, thread)) return null;
  const label = summary === "" ? strings.chatSettings.title : strings.chatSettings.shown(summary);
  return (
    <button
      type="button"
      class={summary === "" ? "quiet-button icon-only" : "quiet-button chat-settings"}
      aria-label={label}
      title={label}
      aria-haspopup="dialog"
      onClick={() => (session.dialog.value = { kind: "chat settings", thread })}
    >
      <InstructionsIcon size={16} />
      {summary !== "" && <span class="one-line">{summary}</span>}
    </button>
  );
}

/** Changing the settings of a kept chat is changing the chat. */
export function mayChangeSettings(session: Session, thread: Thread): boolean {
  return session.mayRun && (session.mayWrite || !thread.isKept);
}

function summaryOf({ instructions, temperature, maxTokens }: ChatSettings): string {
  const parts = [
    instructions && strings.chatSettings.instructions,
    temperature !== null && strings.chatSettings.temperatureOf(temperature),
    maxTokens !== null && strings.chatSettings.maxTokensOf(maxTokens),
  ];
  return parts.filter(Boolean).join(" · ");
}
