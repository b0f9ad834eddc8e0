/** What can be done with the selected chats. */

import { ArchiveIcon, CloseIcon, TrashIcon, UnarchiveIcon } from "../icons";
import { SELECTION, type SidebarState } from "./sidebar-state";
import { strings } from "../../strings";

export function SelectionBar({ state }: { state: SidebarState }) {
  const { session, selection, deletion } = state;
  const count = selection.rows.value.length;
  const isArchive = session.chats.kind.value === "archived";
  const isArmed = deletion.armed.value === SELECTION;
  const areAll = count > 0 && session.chats.isWhole.value && count === session.chats.rows.value.length;
  return (
    <div
      class="selection-bar"
      role="group"
      aria-label={strings.bulk.region}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        state.leaveSelection();
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      <span class="selection-head">
        <label>
          <input type="checkbox" checked={areAll} onChange={() => void state.selectAll(!areAll)} />
          {strings.bulk.all}
        </label>
        <span role="status">{strings.bulk.selected(count)}</span>
        <button
          type="button"
          class="quiet-button icon-only small"
          aria-label={strings.bulk.stop}
          title={strings.bulk.stop}
          onClick={() => state.stopSelection()}
        >
          <CloseIcon />
        </button>
      </span>
      <span class="selection-actions">
        <button
          type="button"
          class="button small"
          aria-disabled={count === 0}
          onClick={() => count > 0 && state.archiveSelected(!isArchive)}
        >
          {isArchive ? <UnarchiveIcon size={16} /> : <ArchiveIcon size={16} />}
          {isArchive ? strings.chats.unarchive : strings.chats.archive}
        </button>
        <button
          type="button"
          class="button bad small"
          aria-disabled={count === 0}
          // A double click or a held key does not confirm.
          onClick={(event) => count > 0 && event.detail <= 1 && state.deleteSelected()}
          onKeyDown={(event) => event.repeat && event.key === "Enter" && event.preventDefault()}
          onBlur={() => deletion.disarm()}
        >
          <TrashIcon size={16} />
          {isArmed ? strings.bulk.confirmDelete(count) : strings.chats.delete}
        </button>
      </span>
    </div>
  );
}
