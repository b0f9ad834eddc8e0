/** Actions on a turn. The buttons are always there for the keyboard, and visible under the pointer. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import type { Turn } from "turnledger";
import { copyText, selectContents } from "../../markdown/clipboard";
import type { Session } from "../../session/session";
import { markdownOf, type TurnPart } from "../../thread/turn-parts";
import type { Thread } from "../../thread/thread";
import { BranchIcon, CheckIcon, CopyIcon, EditIcon, MoreIcon, RetryIcon, UndoIcon } from "../icons";
import { Menu, type MenuEntry } from "../menu";
import { VersionSwitcher } from "./version-switcher";
import { TurnUsageView } from "./turn-usage";

/** Milliseconds for which "Copied" is shown. */
const SAID_FOR = 2_000;

interface Given {
  readonly session: Session;
  readonly thread: Thread;
  readonly turn: Turn;
  readonly parts: readonly TurnPart[];
}

interface OfMessage extends Omit<Given, "thread" | "turn"> {
  /** Null while it runs: the space is reserved, so that nothing moves later. */
  readonly turn: Turn | null;
  readonly edit: () => void;
}

export function MessageActions({ session, turn, parts, edit }: OfMessage) {
  const text = markdownOf(parts);
  if (!text) return null;
  if (!turn) return <div class="turn-actions of-message" />;
  return (
    <div class="turn-actions of-message">
      <CopyButton session={session} label="Copy message" text={text} />
      {session.mayRun && (
        <button
          type="button"
          class="quiet-button icon-only small"
          data-edit=""
          aria-label="Edit message"
          title="Edit message"
          onClick={edit}
        >
          <EditIcon size={16} />
        </button>
      )}
    </div>
  );
}

export function AnswerActions({ session, thread, turn, parts, isLast }: Given & { readonly isLast: boolean }) {
  const text = markdownOf(parts);
  const entries = thread.isKept ? entriesOf(session, thread, turn, isLast) : [];
  return (
    <div class="turn-actions">
      {thread.isKept && <VersionSwitcher session={session} thread={thread} turn={turn} />}
      {text && <CopyButton session={session} label="Copy answer" text={text} />}
      {session.mayRun && (
        <button
          type="button"
          class="quiet-button icon-only small"
          aria-label="Answer again"
          title="Answer again"
          onClick={() => void thread.regenerate(turn)}
        >
          <RetryIcon size={16} />
        </button>
      )}
      {entries.length > 0 && (
        <Menu label="More about this answer" class="quiet-button icon-only small" entries={entries}>
          <MoreIcon size={16} />
        </Menu>
      )}
      <TurnUsageView turn={turn} />
    </div>
  );
}

function entriesOf(session: Session, thread: Thread, turn: Turn, isLast: boolean): readonly MenuEntry[] {
  const entries: MenuEntry[] = [];
  const models = session.models.value;
  if (session.mayRun && models.length > 1) {
    for (const { id } of models.slice(0, 12)) {
      const run = (): void => void thread.regenerate(turn, { model: id });
      entries.push({ label: `Answer again with ${id}`, icon: <RetryIcon size={16} />, run });
    }
    entries.push("line");
  }
  if (!session.mayWrite) return entries;
  const fork = async (): Promise<void> => {
    const made = await thread.fork(turn);
    if (made !== null) session.router.open(made);
  };
  entries.push({
    label: "Fork from here",
    hint: "A new chat that begins like this one",
    icon: <BranchIcon size={16} />,
    run: () => void fork(),
  });
  if (isLast) {
    const run = (): void => void thread.undo();
    const isDisabled = thread.pending.value.length > 0;
    const icon = <UndoIcon size={16} />;
    entries.push({ label: "Take back this message", hint: "And its answer", icon, isDisabled, run });
  }
  return entries;
}

function CopyButton({ session, label, text }: { session: Session; label: string; text: string }) {
  const isCopied = useSignal(false);
  const button = useRef<HTMLButtonElement>(null);
  const copy = async (): Promise<void> => {
    if (await copyText(text)) {
      session.notices.announce("Copied");
      isCopied.value = true;
      setTimeout(() => (isCopied.value = false), SAID_FOR);
      return;
    }
    const shown = button.current?.closest(".turn")?.querySelector(label === "Copy message" ? ".asked" : ".answer");
    if (shown) selectContents(shown);
    session.notices.news("Selected: copy it with your keyboard or menu.");
  };
  return (
    <button
      ref={button}
      type="button"
      class="quiet-button icon-only small"
      aria-label={label}
      title={isCopied.value ? "Copied" : label}
      onClick={() => void copy()}
    >
      {isCopied.value ? <CheckIcon size={16} /> : <CopyIcon size={16} />}
    </button>
  );
}
