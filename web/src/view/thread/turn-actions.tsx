/** Actions on a turn. The buttons are always there for the keyboard, and visible under the pointer. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import type { Turn } from "turnledger";
import { copyText, selectContents } from "../../markdown/clipboard";
import type { Session } from "../../session/session";
import { markdownOf, type TurnPart } from "../../thread/turn-parts";
import type { Thread } from "../../thread/thread";
import { namedItems } from "../../thread/turn-items";
import { BranchIcon, CheckIcon, CopyIcon, EditIcon, EyeIcon, HideIcon, MoreIcon, RetryIcon, UndoIcon } from "../icons";
import { Menu, type MenuEntry } from "../menu";
import { VersionSwitcher } from "./version-switcher";
import { TurnUsageView } from "./turn-usage";
import { strings } from "../../strings";

/** Milliseconds for which "Copied" is shown. */
const COPIED_TIME = 2_000;
/** The most items that can be hidden one by one: a menu has to fit the screen. */
const MAX_ITEMS = 8;

interface AnswerProps {
  readonly session: Session;
  readonly thread: Thread;
  readonly turn: Turn;
  readonly parts: readonly TurnPart[];
}

interface MessageProps extends AnswerProps {
  readonly edit: () => void;
}

/** Beside the message. */
export function MessageActions({ session, thread, turn, parts, edit }: MessageProps) {
  const text = markdownOf(parts);
  if (!text) return null;
  return (
    <div class="turn-actions of-message">
      {thread.isKept && <VersionSwitcher of="message" {...{ session, thread, turn }} />}
      <CopyButton session={session} label={strings.turn.copyMessage} text={text} selected=".input" />
      {session.mayRun && (
        <button
          type="button"
          class="quiet-button icon-only small"
          data-edit=""
          aria-label={strings.turn.editMessage}
          title={strings.turn.editMessage}
          onClick={edit}
        >
          <EditIcon size={16} />
        </button>
      )}
    </div>
  );
}

export function AnswerActions({ session, thread, turn, parts, isLast }: AnswerProps & { readonly isLast: boolean }) {
  const text = markdownOf(parts);
  const entries = thread.isKept ? entriesOf(session, thread, turn, isLast) : [];
  return (
    <div class="turn-actions">
      {thread.isKept && <VersionSwitcher of="answer" {...{ session, thread, turn }} />}
      {text && <CopyButton session={session} label={strings.turn.copyAnswer} text={text} selected=".answer" />}
      {session.mayRun && (
        <button
          type="button"
          class="quiet-button icon-only small"
          aria-label={strings.turn.regenerate}
          title={strings.turn.regenerate}
          onClick={() => void thread.regenerate(turn)}
        >
          <RetryIcon size={16} />
        </button>
      )}
      {entries.length > 0 && (
        <Menu label={strings.turn.moreActions} class="quiet-button icon-only small" entries={entries}>
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
    const names = models.map(({ id }) => id);
    const withModel = (model: string): MenuEntry => ({
      label: model,
      icon: model === turn.details["model"] && <CheckIcon size={16} />,
      run: () => void thread.regenerate(turn, { model }),
    });
    const icon = <RetryIcon size={16} />;
    entries.push({ label: strings.turn.regenerateWith, icon, entries: names.map(withModel) }, "line");
  }
  if (!session.mayWrite) return entries;
  const fork = async (): Promise<void> => {
    const forked = await thread.fork(turn);
    if (forked !== null) session.router.open(forked);
  };
  entries.push({
    label: strings.turn.fork,
    hint: strings.turn.forkHint,
    icon: <BranchIcon size={16} />,
    run: () => void fork(),
  });
  const isHidden = turn.hiddenFromModel.length > 0;
  entries.push({
    label: isHidden ? strings.turn.showToModel : strings.turn.hideFromModel,
    hint: isHidden ? strings.turn.showToModelHint : strings.turn.hideFromModelHint,
    icon: isHidden ? <EyeIcon size={16} /> : <HideIcon size={16} />,
    run: () => void thread.showToModel(turn, isHidden),
  });
  const items = namedItems(turn);
  for (const { name, place, isHidden } of items.length > 1 ? items.slice(0, MAX_ITEMS) : []) {
    entries.push({
      label: isHidden ? strings.turn.showItemToModel(name) : strings.turn.hideItemFromModel(name),
      icon: isHidden ? <EyeIcon size={16} /> : <HideIcon size={16} />,
      run: () => void thread.showToModel(turn, isHidden, place),
    });
  }
  if (isLast) {
    const run = (): void => void thread.undo();
    const isDisabled = thread.pending.value.length > 0;
    const icon = <UndoIcon size={16} />;
    entries.push({ label: strings.turn.undo, hint: strings.turn.undoHint, icon, isDisabled, run });
  }
  return entries;
}

interface CopyProps {
  readonly session: Session;
  readonly label: string;
  readonly text: string;
  /** The part of the turn to select where copying is forbidden. */
  readonly selected: ".input" | ".answer";
}

function CopyButton({ session, label, text, selected }: CopyProps) {
  const isCopied = useSignal(false);
  const button = useRef<HTMLButtonElement>(null);
  const copy = async (): Promise<void> => {
    if (await copyText(text)) {
      session.notices.announce(strings.common.copied);
      isCopied.value = true;
      setTimeout(() => (isCopied.value = false), COPIED_TIME);
      return;
    }
    const shown = button.current?.closest(".turn")?.querySelector(selected);
    if (shown) selectContents(shown);
    session.notices.news(strings.common.textSelected);
  };
  return (
    <button
      ref={button}
      type="button"
      class="quiet-button icon-only small"
      aria-label={label}
      title={isCopied.value ? strings.common.copied : label}
      onClick={() => void copy()}
    >
      {isCopied.value ? <CheckIcon size={16} /> : <CopyIcon size={16} />}
    </button>
  );
}
