/** The turns of a chat, oldest first, then the pending ones. */

import type { JSX } from "preact";
import { useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { errorText } from "../../session/notices";
import type { Session } from "../../session/session";
import { threadRows, type ThreadRow } from "../../thread/thread-rows";
import type { Thread } from "../../thread/thread";
import "../../style/thread.css";
import { DownIcon } from "../icons";
import { useAnnouncements } from "./live-region";
import { FailureCard } from "./failure-card";
import { TurnRow } from "./turn-row";
import { ScrollPosition } from "./scroll-position";
import { strings } from "../../strings";

const numbers = new WeakMap<Thread, number>();
let last = 0;

export function ThreadView({ session, thread }: { session: Session; thread: Thread }) {
  if (!numbers.has(thread)) numbers.set(thread, ++last);
  // Each chat has its own scroll position.
  return <Body key={numbers.get(thread)} session={session} thread={thread} />;
}

function Body({ session, thread }: { session: Session; thread: Thread }) {
  const box = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const scroll = useMemo(() => {
    return new ScrollPosition({
      onNearTop: () => void thread.older(),
      onNearEnd: () => void thread.newer(),
      isGrowing: () => thread.pending.peek().length > 0,
      hasNewer: () => thread.hasNewer.peek(),
      // A visitor has not read it yet.
      startsAt: session.isReader ? "start" : "end",
    });
  }, []);
  const rows = useComputed(() => threadRows(thread.turns.value, thread.pending.value, (turn) => thread.nameOf(turn)));
  const failed = thread.failed.value;
  const problem = thread.problem.value;
  const end = useRef<string | undefined>(undefined);
  const lastFailed = useRef(failed);
  const hadFocus = box.current?.contains(document.activeElement) ?? false;
  useLayoutEffect(() => scroll.watch(box.current as HTMLElement, content.current as HTMLElement), []);
  useLayoutEffect(() => {
    const isOther = end.current !== undefined && !rows.value.some(({ name }) => name === end.current);
    // Scroll to the failure, which is shown at the end.
    if (failed?.isLocal && failed !== lastFailed.current) scroll.toEnd();
    else scroll.keep(isOther);
    lastFailed.current = failed;
    scroll.more();
    end.current = rows.value.at(-1)?.name;
    // The focused element is gone: keyboard users continue here, not at the top of the page.
    if (hadFocus && document.activeElement === document.body) box.current?.focus({ preventScroll: true });
  }, [rows.value, failed]);
  useStayInOtherLanguage(scroll);
  useScrollToOwn(thread, scroll);
  useAnnouncements(session, thread);
  const views = useRowViews(session, thread, rows.value);
  return (
    <div class="thread" ref={box} role="log" aria-label={strings.thread.messages} aria-live="off" tabIndex={0}>
      <div class="rows" ref={content} aria-busy={!thread.isLoaded.value && problem === null}>
        {thread.hasOlder.value && (
          <button type="button" class="quiet-button earlier" onClick={() => void thread.older()}>
            {strings.thread.showEarlier}
          </button>
        )}
        {!thread.isLoaded.value && problem === null && (
          <p class="loading">
            <span class="spinner" aria-hidden="true" />
            {strings.common.loading}
          </p>
        )}
        {views}
        {failed && <FailureCard session={session} thread={thread} failed={failed} />}
        {problem !== null && (
          <p class="card bad" role="alert">
            {errorText(problem)}
          </p>
        )}
      </div>
      <EndButton scroll={scroll} thread={thread} />
    </div>
  );
}

/** The views of the rows. Unchanged rows keep the same element, which costs nothing. */
function useRowViews(session: Session, thread: Thread, rows: readonly ThreadRow[]): JSX.Element[] {
  const cache = useRef(new Map<string, { readonly known: readonly unknown[]; readonly view: JSX.Element }>());
  const next: typeof cache.current = new Map();
  const views = rows.map((row, at) => {
    const [before, after] = [rows[at - 1]?.turn ?? null, rows[at + 1]?.turn ?? null];
    const isLast = at === rows.length - 1;
    const known = [row.turn, row.pending, before, after, isLast];
    const old = cache.current.get(row.name);
    const isSame = old?.known.every((each, index) => each === known[index]);
    const props = { session, thread, row, before, after, isLast };
    const view = old && isSame ? old.view : <TurnRow key={row.name} {...props} />;
    next.set(row.name, { known, view });
    return view;
  });
  cache.current = next;
  return views;
}

/** Keep the position when another language renders all rows anew. Meanwhile they are shorter, and the browser moves
 * it. */
function useStayInOtherLanguage(scroll: ScrollPosition): void {
  const { language } = strings;
  const shown = useRef(language);
  useLayoutEffect(() => {
    if (shown.current === language) return;
    shown.current = language;
    queueMicrotask(() => scroll.keep());
    // Some of a row appears in the next frame only.
    const stay = (): void => scroll.toEnd();
    if (scroll.isAtEnd.peek()) requestAnimationFrame(() => requestAnimationFrame(stay));
  }, [language]);
}

/** Scroll to the user's own new message. */
function useScrollToOwn(thread: Thread, scroll: ScrollPosition): void {
  useEffect(() => {
    const known = new Set<string>();
    return thread.pending.subscribe((pending) => {
      const own = pending.filter((each) => each.isLocal && each.replaces.peek() === null);
      if (own.some(({ name }) => !known.has(name))) scroll.toEnd();
      for (const { name } of own) known.add(name);
    });
  }, []);
}

function EndButton({ scroll, thread }: { scroll: ScrollPosition; thread: Thread }) {
  if (scroll.isAtEnd.value) return null;
  const hasNews = scroll.hasNews.value;
  const go = async (): Promise<void> => {
    if (thread.hasNewer.peek()) await thread.latest();
    scroll.toEnd();
  };
  return (
    <button type="button" class="button end" onClick={() => void go()}>
      <DownIcon size={16} />
      {hasNews ? strings.thread.newMessages : strings.thread.latest}
    </button>
  );
}
