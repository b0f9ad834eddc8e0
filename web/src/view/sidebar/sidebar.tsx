/** The list of chats beside the thread. */

import type { TargetedKeyboardEvent } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import "../../style/sidebar.css";
import { listLines, type ChatListLine } from "../../chats/date-groups";
import { openNewChat } from "../../chats/open-chat";
import { isTextField } from "../../composer/shortcuts";
import { safeText } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import {
  ArchiveIcon,
  BackIcon,
  CloseIcon,
  FolderIcon,
  MoreIcon,
  NewChatIcon,
  SearchIcon,
  SelectIcon,
  TagIcon,
  TrashIcon,
} from "../icons";
import { Menu, type MenuEntry } from "../menu";
import { ChatLine, DeletedLine } from "./chat-line";
import { SearchResultsView } from "./search-results";
import { SelectionBar } from "./selection-bar";
import { SELECTION, SidebarState } from "./sidebar-state";
import { VirtualList } from "./virtual-list";
import { locale, strings } from "../../strings";

interface SidebarProps {
  readonly session: Session;
  /** Show the sidebar if it is hidden: the user wants to search. */
  readonly reveal?: () => void;
  /** The user opened a chat: hide the list on narrow screens. */
  readonly leave?: () => void;
}

/** The keys that focus the search field, by mode. */
const SEARCH_KEYS = { all: "/ Control+K Meta+K", modified: "Control+K Meta+K", none: undefined };

export function SidebarView({ session, reveal, leave }: SidebarProps) {
  const state = useMemo(() => new SidebarState(session), [session]);
  useEffect(() => () => state.close(), [state]);
  const current = session.threads.current.value?.id.value ?? null;
  useEffect(() => {
    const markSeen = (): void => {
      if (document.visibilityState !== "hidden") session.chats.markSeen(current);
    };
    markSeen();
    document.addEventListener("visibilitychange", markSeen);
    return () => document.removeEventListener("visibilitychange", markSeen);
  }, [session, current]);
  const kind = session.chats.kind.value;
  const tag = session.chats.tags.chosen.value;
  useLayoutEffect(() => state.selection.stop(), [state, kind, tag]);
  const isSearching = state.search.isOn.value;
  return (
    <nav class="sidebar" aria-label={strings.chats.lists.chats}>
      <div class="sidebar-top">
        {session.mayRun && (
          <button
            type="button"
            class="button new-chat"
            onClick={() => {
              openNewChat(session);
              leave?.();
            }}
          >
            <NewChatIcon /> {strings.layout.newChat}
          </button>
        )}
        <TagMenu session={session} />
        <ListsMenu state={state} />
      </div>
      <SearchField state={state} reveal={reveal} />
      {(kind !== "chats" || tag !== null) && !isSearching && <PartView session={session} />}
      {state.selection.isOn.value && !isSearching && <SelectionBar state={state} />}
      {isSearching ? <SearchResultsView state={state} /> : <ListView state={state} />}
      <span class="visually-hidden" role="status">
        {armedText(state)}
      </span>
    </nav>
  );
}

function armedText({ deletion, selection }: SidebarState): string {
  const armed = deletion.armed.value;
  if (armed === null) return "";
  return armed === SELECTION
    ? strings.bulk.pressAgainStatus(selection.rows.value.length)
    : strings.chats.pressAgainStatus;
}

/** Which part of the chats is listed, and the way back to all. */
function PartView({ session: { chats } }: { session: Session }) {
  const kind = chats.kind.value;
  const tag = chats.tags.chosen.value;
  const parts = [
    ...(kind === "chats" ? [] : [strings.chats.lists[kind]]),
    ...(tag === null ? [] : [strings.tags.named(safeText(tag))]),
  ];
  return (
    <div class="sidebar-part">
      <button
        type="button"
        class="quiet-button icon-only small"
        aria-label={strings.chats.backToChats}
        title={strings.chats.backToChats}
        onClick={() => {
          chats.chooseTag(null);
          chats.show("chats");
        }}
      >
        <BackIcon />
      </button>
      <h2 class="one-line" dir="auto">
        {parts.join(" · ")}
      </h2>
    </div>
  );
}

/** The filter by tag; null while it is known that there are no tags. */
function TagMenu({ session: { chats } }: { session: Session }) {
  const chosen = chats.tags.chosen.value;
  const known = chats.tags.known.value;
  if (chosen === null && known.length === 0 && chats.isWhole.value) return null;
  const entries: MenuEntry[] = [null, ...known].map((tag) => ({
    label: tag === null ? strings.tags.all : tag,
    isChecked: tag === chosen,
    run: () => chats.chooseTag(tag),
  }));
  return (
    <Menu
      label={chosen === null ? strings.tags.filter : strings.tags.named(safeText(chosen))}
      class={`quiet-button icon-only${chosen === null ? "" : " chosen"}`}
      entries={entries}
      onToggle={(isOpen) => isOpen && void chats.readAllTags()}
    >
      <TagIcon />
    </Menu>
  );
}

/** The other lists, the scopes, and the selection of several chats. */
function ListsMenu({ state }: { state: SidebarState }) {
  const { session } = state;
  const { chats } = session;
  const kind = chats.kind.value;
  const chosen = chats.scopes.chosen.value;
  const known = chats.scopes.known.value;
  const entries: MenuEntry[] = [
    {
      label: strings.chats.lists.archived,
      icon: <ArchiveIcon />,
      run: () => chats.show(kind === "archived" ? "chats" : "archived"),
    },
    {
      label: strings.chats.lists.deleted,
      icon: <TrashIcon />,
      run: () => chats.show(kind === "deleted" ? "chats" : "deleted"),
    },
  ];
  if (session.mayWrite && kind !== "deleted") {
    entries.push("line", { label: strings.bulk.start, icon: <SelectIcon />, run: () => state.startSelection() });
  }
  const labelOf = (scope: string | null): string =>
    scope === null ? strings.chats.allScopes : safeText(scope) || strings.chats.noScope;
  const scopes: MenuEntry[] = [null, ...known].map((scope) => ({
    label: labelOf(scope),
    isChecked: scope === chosen,
    run: () => chats.chooseScope(scope),
  }));
  const isOne = chats.scopes.fixed !== null || (known.length < 2 && chosen === null);
  return (
    <>
      {!isOne && (
        <Menu
          label={strings.chats.scope(labelOf(chosen))}
          class={`quiet-button icon-only${chosen === null ? "" : " chosen"}`}
          entries={scopes}
        >
          <FolderIcon />
        </Menu>
      )}
      <Menu label={strings.chats.otherLists} entries={entries}>
        <MoreIcon />
      </Menu>
    </>
  );
}

function SearchField({ state, reveal }: { state: SidebarState; reveal: (() => void) | undefined }) {
  const { search, session } = state;
  const field = useRef<HTMLInputElement>(null);
  useSearchKeys(session, field, reveal);
  const onKey = (event: TargetedKeyboardEvent<HTMLInputElement>): void => {
    const lines = event.currentTarget.closest(".sidebar")?.querySelector<HTMLElement>(".lines");
    if (event.isComposing) return;
    if (event.key === "Escape" && search.typed.value !== "") search.type("");
    else if (event.key === "ArrowDown") lines?.querySelector<HTMLElement>(".line-main[tabindex='0']")?.focus();
    else if (event.key === "Enter") void search.submit();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  // Search again in the new scope.
  const scope = session.chats.scopes.chosen.value;
  useEffect(() => void search.submit(), [scope]);
  return (
    <div class="search" role="search">
      <SearchIcon />
      <input
        ref={field}
        class="field"
        type="search"
        aria-label={strings.search.label}
        aria-keyshortcuts={SEARCH_KEYS[session.shortcuts.mode.value]}
        placeholder={strings.search.placeholder}
        autocomplete="off"
        spellcheck={false}
        dir="auto"
        value={search.typed.value}
        onInput={({ currentTarget }) => search.type(currentTarget.value)}
        onKeyDown={onKey}
      />
      {search.typed.value !== "" && (
        <button
          type="button"
          class="quiet-button icon-only small"
          aria-label={strings.search.clear}
          onClick={() => {
            search.type("");
            field.current?.focus();
          }}
        >
          <CloseIcon />
        </button>
      )}
    </div>
  );
}

/** Focus the search field with `/` or Control/Command+K from anywhere. */
function useSearchKeys(
  { shortcuts }: Session,
  field: { readonly current: HTMLInputElement | null },
  reveal: (() => void) | undefined,
): void {
  useLayoutEffect(() => {
    const find = (event: KeyboardEvent): void => {
      const isLetter = !event.ctrlKey && !event.metaKey && isTextField(event.target);
      if (isLetter || !shortcuts.isPressed("search", event)) return;
      event.preventDefault();
      // A hidden field takes no focus: `reveal` shows and focuses it.
      if (field.current!.closest("[inert], [hidden]")) reveal?.();
      else field.current!.select();
    };
    document.addEventListener("keydown", find);
    return () => document.removeEventListener("keydown", find);
  }, []);
}

function ListView({ state }: { state: SidebarState }) {
  const { session, active } = state;
  const { chats } = session;
  const kind = chats.kind.value;
  const rows = chats.rows.value;
  const now = state.today.now.value;
  const lines = useMemo(
    () => listLines(rows, now, kind === "chats", locale()).map(entryOf),
    [rows, now, kind, strings.language],
  );
  const isWhole = chats.isWhole.value;
  const count = rows.length;
  const current = session.threads.current.value?.id.value ?? null;
  return (
    <>
      <Note session={session} />
      <VirtualList
        key={kind}
        label={strings.chats.lists[kind]}
        lines={lines}
        height={2.25}
        touchHeight={2.75}
        count={isWhole ? count : -1}
        active={active.value ?? current}
        onActive={(id) => (active.value = id)}
        onNeed={(needed) => void chats.need(needed)}
        onKey={kind === "deleted" ? undefined : (event, { line }) => line.kind === "chat" && act(state, event, line)}
      >
        {({ line }, tabIndex) =>
          line.kind === "heading" ? (
            <h3>{line.text}</h3>
          ) : kind === "deleted" ? (
            <DeletedLine state={state} row={line.row} tabIndex={tabIndex} />
          ) : (
            <ChatLine state={state} row={line.row} tabIndex={tabIndex} />
          )
        }
      </VirtualList>
    </>
  );
}

function entryOf(line: ChatListLine) {
  return { id: line.id, number: line.kind === "chat" ? line.number : undefined, line };
}

/** Keyboard actions on a chat. */
function act(
  state: SidebarState,
  event: TargetedKeyboardEvent<HTMLElement>,
  { row }: ChatListLine & { kind: "chat" },
): void {
  if (!state.session.mayWrite) return;
  if (state.selection.isOn.peek()) return actOnSelection(state, event);
  const isMenu = event.key === "ContextMenu" || (event.key === "F10" && event.shiftKey);
  if (event.key === "F2") state.rename(row);
  else if (event.key === "Delete" && event.repeat) event.preventDefault();
  else if (event.key === "Delete") state.delete(row);
  else if (event.key === "Escape" && state.deletion.armed.peek() !== null) state.deletion.disarm();
  else if (isMenu) event.currentTarget.querySelector<HTMLElement>(`[data-line="${row.id}"] [aria-haspopup]`)?.click();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** Keyboard actions on the selected chats. */
function actOnSelection(state: SidebarState, event: TargetedKeyboardEvent<HTMLElement>): void {
  if (event.key === "Delete" && event.repeat) event.preventDefault();
  else if (event.key === "Delete") state.deleteSelected();
  else if (event.key === "Escape") state.leaveSelection();
  else if (event.key === "a" && (event.ctrlKey || event.metaKey)) void state.selectAll(true);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** A note where there are no chats, or not all. */
function Note({ session }: { session: Session }) {
  const { chats } = session;
  const kind = chats.kind.value;
  if (chats.problem.value !== null) {
    return (
      <div class="list-note" role="alert">
        {strings.chats.notLoaded}{" "}
        <button type="button" class="quiet-button small" onClick={() => void chats.retry()}>
          {strings.common.tryAgain}
        </button>
      </div>
    );
  }
  if (!chats.isLoaded.value) return <p class="list-note">{strings.common.loading}</p>;
  if (chats.rows.value.length > 0) {
    return kind === "deleted" ? <p class="list-note">{strings.chats.canRestore}</p> : null;
  }
  return <p class="list-note">{chats.tags.chosen.value === null ? strings.chats.empty[kind] : strings.tags.empty}</p>;
}
