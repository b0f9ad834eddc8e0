/** The turns of a chat, the oldest first, and what is on its way. */

import type { JSX } from "preact";
import { useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { wordsOfProblem } from "../../session/notices";
import type { Session } from "../../session/session";
import { rowsOf, type Row } from "../../thread/thread-rows";
import type { ShownThread } from "../../thread/thread";
import "../../style/thread.css";
import { DownIcon } from "../icons";
import { useAnnouncements } from "./live-region";
import { FailureView } from "./failure-card";
import { RowView } from "./turn-row";
import { Scrolling } from "./scroll-position";

const numbers = new WeakMap<ShownThread, number>();
let last = 0;

export function ThreadView({ session, thread }: { session: Session; thread: ShownThread }) {
  if (!numbers.has(thread)) numbers.set(thread, ++last);
  // Another chat is read at a place of its own.
  return <Body key={numbers.get(thread)} session={session} thread={thread} />;
}

function Body({ session, thread }: { session: Session; thread: ShownThread }) {
  const box = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const scrolling = useMemo(() => {
    return new Scrolling(
      () => void thread.older(),
      () => thread.running.peek().length > 0,
    );
  }, []);
  const rows = useComputed(() => rowsOf(thread.turns.value, thread.running.value, (turn) => thread.nameOf(turn)));
  const failed = thread.failed.value;
  const problem = thread.problem.value;
  const end = useRef<string | undefined>(undefined);
  const told = useRef(failed);
  const hadFocus = box.current?.contains(document.activeElement) ?? false;
  useLayoutEffect(() => scrolling.watch(box.current as HTMLElement, content.current as HTMLElement), []);
  useLayoutEffect(() => {
    const isOther = end.current !== undefined && !rows.value.some(({ name }) => name === end.current);
    // What failed here is told at the end, whatever of it was shown there before.
    if (failed?.isHere && failed !== told.current) scrolling.toEnd();
    else scrolling.keep(isOther);
    told.current = failed;
    scrolling.more();
    end.current = rows.value.at(-1)?.name;
    // What had the focus is gone: whoever has no mouse goes on from here, and not from the top of the page.
    if (hadFocus && document.activeElement === document.body) box.current?.focus({ preventScroll: true });
  }, [rows.value, failed]);
  useFollowingOwn(thread, scrolling);
  useAnnouncements(session, thread);
  const views = useRowViews(session, thread, rows.value);
  return (
    <div class="thread" ref={box} role="log" aria-label="Messages" aria-live="off" tabIndex={0}>
      <div class="rows" ref={content} aria-busy={!thread.isLoaded.value && problem === null}>
        {thread.hasOlder.value && (
          <button type="button" class="quiet-button earlier" onClick={() => void thread.older()}>
            Show earlier messages
          </button>
        )}
        {!thread.isLoaded.value && problem === null && (
          <p class="loading">
            <span class="spinner" aria-hidden="true" />
            Loading…
          </p>
        )}
        {views}
        {failed && <FailureView session={session} thread={thread} failed={failed} />}
        {problem !== null && (
          <p class="card bad" role="alert">
            {wordsOfProblem(problem)}
          </p>
        )}
      </div>
      <EndButton scrolling={scrolling} />
    </div>
  );
}

/** The views of the rows. Those of rows that are as they were are the same objects, which costs nothing. */
function useRowViews(session: Session, thread: ShownThread, rows: readonly Row[]): JSX.Element[] {
  const made = useRef(new Map<string, { readonly known: readonly unknown[]; readonly view: JSX.Element }>());
  const next: typeof made.current = new Map();
  const views = rows.map((row, at) => {
    const [before, after] = [rows[at - 1]?.turn ?? null, rows[at + 1]?.turn ?? null];
    const isLast = at === rows.length - 1;
    const known = [row.turn, row.running, before, after, isLast];
    const old = made.current.get(row.name);
    const isSame = old?.known.every((each, place) => each === known[place]);
    const given = { session, thread, row, before, after, isLast };
    const view = old && isSame ? old.view : <RowView key={row.name} {...given} />;
    next.set(row.name, { known, view });
    return view;
  });
  made.current = next;
  return views;
}

/** Who sends something wants to see it. */
function useFollowingOwn(thread: ShownThread, scrolling: Scrolling): void {
  useEffect(() => {
    const known = new Set<string>();
    return thread.running.subscribe((running) => {
      const own = running.filter((each) => each.isHere && each.replaces === null);
      if (own.some(({ name }) => !known.has(name))) scrolling.toEnd();
      for (const { name } of own) known.add(name);
    });
  }, []);
}

function EndButton({ scrolling }: { scrolling: Scrolling }) {
  if (scrolling.isAtEnd.value) return null;
  const hasNews = scrolling.hasNews.value;
  return (
    <button type="button" class="button end" onClick={() => scrolling.toEnd()}>
      <DownIcon size={16} />
      {hasNews ? "New" : "To the end"}
    </button>
  );
}
