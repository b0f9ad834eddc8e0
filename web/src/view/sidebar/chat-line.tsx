/** A chat in the list. */

import { useLayoutEffect, useRef } from "preact/hooks";
import { chatTitle, type ChatRow } from "../../chats/chat-row";
import { chatEntries, deleteEntry, shareEntries } from "../chat-entries";
import { MoreIcon, SelectIcon, UndoIcon } from "../icons";
import { Menu } from "../menu";
import { isPlainClick } from "./list-navigation";
import type { SidebarState } from "./sidebar-state";
import { locale, strings } from "../../strings";

interface LineProps {
  readonly state: SidebarState;
  readonly row: ChatRow;
  readonly tabIndex: 0 | -1;
}

export function ChatLine({ state, row, tabIndex }: LineProps) {
  const { session, deletion, hovered, focused } = state;
  if (state.editing.value?.row.id === row.id) return <NameField state={state} />;
  if (state.selection.isOn.value) return <SelectableLine state={state} row={row} tabIndex={tabIndex} />;
  const isCurrent = session.threads.current.value?.id.value === row.id;
  const isArmed = deletion.armed.value === row.id;
  // The focus returns from a dialog to the menu button.
  const dialog = session.dialog.value;
  const hasDialog = dialog !== null && "row" in dialog && dialog.row.id === row.id;
  const isActive = hasDialog || [hovered, focused, state.opened].some(({ value }) => value === row.id);
  const isTouch = matchMedia("(pointer: coarse)").matches;
  return (
    <div
      class={`chat-line${isArmed ? " armed" : ""}`}
      onPointerEnter={() => (hovered.value = row.id)}
      onPointerLeave={() => hovered.peek() === row.id && (hovered.value = null)}
      onFocusIn={() => (focused.value = row.id)}
      onFocusOut={({ currentTarget, relatedTarget }) => {
        // Not if it moves on to the menu button, which would be gone by then.
        if (!currentTarget.contains(relatedTarget as Node | null)) focused.value = null;
      }}
    >
      <a
        class="line-main"
        href={`#${row.id}`}
        tabIndex={tabIndex}
        aria-current={isCurrent ? "page" : undefined}
        title={chatTitle(row)}
        onClick={(event) => {
          if (!isPlainClick(event)) return;
          event.preventDefault();
          session.router.open(row.id);
        }}
        onBlur={() => isArmed && deletion.disarm()}
      >
        <State row={row} isUnseen={!isCurrent && session.chats.unseen.value.has(row.id)} />
        <span class="title" dir="auto">
          {chatTitle(row)}
        </span>
      </a>
      {isArmed && state.opened.value === null && <span class="chip bad">{strings.chats.confirmDelete}</span>}
      {session.mayWrite && (isActive || isTouch) && <Tools state={state} row={row} isArmed={isArmed} />}
    </div>
  );
}

/** A chat while several are selected. */
function SelectableLine({ state: { selection }, row, tabIndex }: LineProps) {
  return (
    <label class="chat-line selectable" title={chatTitle(row)}>
      <input
        type="checkbox"
        class="line-main"
        tabIndex={tabIndex}
        checked={selection.has(row.id)}
        onClick={(event) => selection.set(row.id, event.currentTarget.checked, event.shiftKey)}
      />
      <span class="title" dir="auto">
        {chatTitle(row)}
      </span>
    </label>
  );
}

function State({ row, isUnseen }: { row: ChatRow; isUnseen: boolean }) {
  if (row.isRunning) return <span class="dot running" role="img" aria-label={strings.chats.answering} />;
  if (isUnseen) return <span class="dot unseen" role="img" aria-label={strings.chats.newAnswer} />;
  return null;
}

interface ToolsProps {
  readonly state: SidebarState;
  readonly row: ChatRow;
  readonly isArmed: boolean;
}

function Tools({ state, row, isArmed }: ToolsProps) {
  const { deletion, actions, opened } = state;
  const entries = [
    ...chatEntries(state.session, actions, row, () => state.rename(row)),
    ...shareEntries(state.session, row),
    { label: strings.bulk.select, icon: <SelectIcon />, run: () => state.startSelection(row.id) },
    "line" as const,
    deleteEntry(isArmed, () => state.delete(row, isArmed)), // the menu has closed by then, which disarms
  ];
  return (
    <span class="line-tools">
      <Menu
        label={strings.chats.options(chatTitle(row))}
        class="quiet-button icon-only small"
        entries={entries}
        onToggle={(isOpen) => {
          opened.value = isOpen ? row.id : null;
          if (!isOpen) deletion.disarm();
        }}
      >
        <MoreIcon />
      </Menu>
    </span>
  );
}

/** Rename a chat in place. */
function NameField({ state }: { state: SidebarState }) {
  const field = useRef<HTMLInputElement>(null);
  // Before the next keystroke.
  useLayoutEffect(() => {
    field.current?.focus();
    field.current?.select();
  }, []);
  const end = (isKept: boolean): void => {
    const line = field.current?.closest<HTMLElement>("[data-line]");
    state.renamed(isKept);
    // After rendering, when the link is back, and before the next key.
    queueMicrotask(() => line?.querySelector<HTMLElement>(".line-main")?.focus());
  };
  return (
    <input
      ref={field}
      class="name-field line-main"
      aria-label={strings.chats.name}
      dir="auto"
      maxLength={512}
      value={state.editing.value?.text}
      onInput={({ currentTarget }) => {
        const editing = state.editing.peek();
        if (editing) state.editing.value = { ...editing, text: currentTarget.value };
      }}
      onKeyDown={(event) => {
        if (event.isComposing) return;
        if (event.key === "Enter") end(true);
        else if (event.key === "Escape") end(false);
        else return;
        event.preventDefault();
        event.stopPropagation();
      }}
      onBlur={() => {
        const editing = state.editing.peek();
        // A moving line loses the focus for a moment; keep editing then.
        setTimeout(() => {
          const isSameChat = state.editing.peek()?.row.id === editing?.row.id;
          if (isSameChat && !(document.activeElement instanceof HTMLElement && isNameField(document.activeElement)))
            state.renamed(true);
        });
      }}
    />
  );
}

function isNameField(element: HTMLElement): boolean {
  return element.classList.contains("name-field");
}

/** A deleted chat that can be restored. */
export function DeletedLine({ state, row, tabIndex }: LineProps) {
  const name = chatTitle(row);
  const until =
    row.purgeAt === null ? "" : new Date(row.purgeAt).toLocaleDateString(locale(), { dateStyle: "medium" });
  return (
    <div class="chat-line">
      <span class="title deleted" dir="auto" title={until && strings.chats.restorableUntil(until)}>
        {name}
      </span>
      {state.session.mayWrite && (
        <button
          type="button"
          class="quiet-button small line-main"
          tabIndex={tabIndex}
          aria-label={strings.chats.restoreTitle(name)}
          onClick={() => void state.actions.restore(row)}
        >
          <UndoIcon /> {strings.chats.restore}
        </button>
      )}
    </div>
  );
}
