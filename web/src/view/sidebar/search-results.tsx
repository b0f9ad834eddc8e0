/** The results of a search. */

import type { Hit } from "turnledger";
import { openHit } from "../../chats/open-chat";
import { chatTitle } from "../../chats/chat-row";
import { lineParts, snippetParts } from "../../chats/snippet";
import { safeText } from "../../markdown/safe-text";
import { isPlainClick } from "./list-navigation";
import type { SidebarState } from "./sidebar-state";
import { VirtualList } from "./virtual-list";
import { strings } from "../../strings";

export function SearchResultsView({ state }: { state: SidebarState }) {
  const { search } = state;
  const found = search.found.value;
  const hits = found?.hits ?? [];
  const lines = hits.map((hit, at) => ({ id: hit.chat.id, number: at + 1, hit }));
  const problem = search.problem.value;
  return (
    <>
      <p class="list-note" role="status">
        {problem !== null
          ? strings.search.failed
          : found === null
            ? strings.search.searching
            : hits.length === 0
              ? strings.search.none(safeText(found.query))
              : strings.search.found(hits.length, found.isWhole)}
        {found && !found.isComplete && ` ${strings.search.incomplete}`}
      </p>
      <VirtualList
        label={strings.search.results}
        lines={lines}
        height={3.5}
        touchHeight={3.75}
        count={found?.isWhole ? hits.length : -1}
        active={state.active.value}
        onActive={(id) => (state.active.value = id)}
        onNeed={(count) => {
          if (count > hits.length) void search.more();
        }}
      >
        {({ hit }, tabIndex) => <HitLine state={state} hit={hit} tabIndex={tabIndex} />}
      </VirtualList>
    </>
  );
}

function HitLine({ state, hit, tabIndex }: { state: SidebarState; hit: Hit; tabIndex: 0 | -1 }) {
  const { session } = state;
  const { chat, turn } = hit;
  const row = session.chats.row(chat.id);
  const isCurrent = session.threads.current.value?.id.value === chat.id;
  const marked = (turn === null ? snippetParts : lineParts)(hit.snippet, hit.marks).map(({ text, isMarked }, at) =>
    isMarked ? <mark key={at}>{safeText(text)}</mark> : <span key={at}>{safeText(text)}</span>,
  );
  return (
    <a
      class="line-main hit"
      href={`#${chat.id}`}
      tabIndex={tabIndex}
      aria-current={isCurrent ? "page" : undefined}
      onClick={(event) => {
        if (!isPlainClick(event)) return;
        event.preventDefault();
        void openHit(session, hit);
      }}
    >
      <span class="title" dir="auto">
        {turn === null ? marked : chatTitle(row ?? chat)}
        {chat.archived && <span class="chip">{strings.search.archived}</span>}
      </span>
      {turn !== null && (
        <span class="snippet" dir="auto">
          {marked}
        </span>
      )}
    </a>
  );
}
