/** A list of any length that renders only its visible lines, and the one with the focus. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import {
  firstChoice,
  isLineMain,
  isTyping,
  lineMain,
  useScrollAnchor,
  useStableFocus,
  useLineHeight,
  lineForKey,
  type ListEntry,
  type ListLines,
} from "./list-navigation";

interface VirtualListProps<Line extends ListEntry> {
  readonly label: string;
  readonly lines: readonly Line[];
  /** The height of a line in rem; and on touch screens. */
  readonly height: number;
  readonly touchHeight: number;
  /** How many lines can be selected in total; -1: unknown. */
  readonly count: number;
  /** The line that Tab focuses; null: the first. */
  readonly active: string | null;
  readonly onActive: (id: string) => void;
  /** Called with the number of needed lines when it may have grown. */
  readonly onNeed: (count: number) => void;
  /** Other keys than those for navigation. */
  readonly onKey?: ((event: TargetedKeyboardEvent<HTMLElement>, line: Line) => void) | undefined;
  /** Renders a line. Its focusable element has the class `line-main` and this `tabIndex`. */
  readonly children: (line: Line, tabIndex: 0 | -1) => ComponentChildren;
}

/** Lines rendered above and below the visible ones, for fast scrolling. */
const OVERSCAN = 10;

export function VirtualList<Line extends ListEntry>(props: VirtualListProps<Line>) {
  const { lines, onKey, onActive } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const height = useLineHeight(props.height, props.touchHeight);
  const indexes = useMemo(() => new Map(lines.map(({ id }, at) => [id, at])), [lines]);
  const all = { lines, indexes, scroller };
  const chosen = props.active !== null && indexes.has(props.active) ? props.active : firstChoice(lines)?.id;
  const focus = useStableFocus(all, chosen);
  const { shown, page, measure } = useVisibleLines(all, height, focus.current, props.onNeed);
  const go = (id: string): void => {
    scrollTo(all, id, height);
    measure();
    focus.current = id;
    onActive(id);
    lineMain(scroller.current!, id)?.focus({ preventScroll: true });
  };
  return (
    <div
      ref={scroller}
      class="lines"
      onScroll={measure}
      onFocusIn={({ target }) => {
        const id = (target as HTMLElement).closest<HTMLElement>("[data-line]")?.dataset["line"];
        if (id === undefined) return;
        focus.current = id;
        if (id !== props.active) onActive(id);
      }}
      onKeyDown={(event) => {
        const line = lines[indexes.get(focus.current ?? "") ?? -1];
        if (line === undefined || isTyping(event.target)) return;
        const next = isLineMain(event.target) ? lineForKey(event, lines, indexes.get(line.id)!, page) : undefined;
        if (next === undefined) return onKey?.(event, line);
        event.preventDefault();
        go(next.id);
      }}
    >
      <ul role="list" aria-label={props.label} style={{ blockSize: `${lines.length * height}px` }}>
        {shown.map((at) => {
          const line = lines[at]!;
          const isHeading = line.number === undefined;
          return (
            <li
              key={line.id}
              data-line={line.id}
              class={isHeading ? "line heading" : "line"}
              style={{ insetBlockStart: `${at * height}px`, blockSize: `${height}px` }}
              aria-setsize={isHeading ? undefined : props.count}
              aria-posinset={line.number}
            >
              {props.children(line, line.id === chosen ? 0 : -1)}
            </li>
          );
        })}
      </ul>
    </div>
  );
}

/** Which lines are rendered: the visible ones, some around them, and the focused one. `page`: how many are visible.
 * `measure`: measure again. */
function useVisibleLines(all: ListLines, height: number, focused: string | null, onNeed: (count: number) => void) {
  const { lines, indexes, scroller } = all;
  const first = useSignal(0);
  const visibleCount = useSignal(30);
  const anchor = useScrollAnchor(all, height);
  const measure = (): void => {
    const { scrollTop, clientHeight } = scroller.current!;
    first.value = Math.floor(scrollTop / height);
    visibleCount.value = Math.ceil(clientHeight / height) + 1;
    anchor();
  };
  const latest = useRef(measure);
  latest.current = measure;
  useLayoutEffect(() => {
    measure();
    const watch = new ResizeObserver(() => latest.current());
    watch.observe(scroller.current!);
    return () => watch.disconnect();
  }, [height]);
  const needed = first.value + 2 * visibleCount.value + OVERSCAN;
  useEffect(() => onNeed(needed), [needed, lines]);
  const from = Math.max(0, Math.min(first.value, lines.length - visibleCount.value) - OVERSCAN);
  const to = Math.min(lines.length, first.value + visibleCount.value + OVERSCAN);
  const shown = Array.from({ length: Math.max(0, to - from) }, (_, at) => from + at);
  const focusedIndex = indexes.get(focused ?? "");
  if (focusedIndex !== undefined && focusedIndex < from) shown.unshift(focusedIndex);
  if (focusedIndex !== undefined && focusedIndex >= to) shown.push(focusedIndex);
  return { shown, page: visibleCount.value - 2, measure };
}

/** Scroll a line and its heading into view. */
function scrollTo({ lines, indexes, scroller }: ListLines, id: string, height: number): void {
  const at = indexes.get(id)!;
  const view = scroller.current!;
  const top = (lines[at - 1]?.number === undefined ? at - 1 : at) * height;
  const end = (at + 1) * height;
  if (top < view.scrollTop) view.scrollTop = Math.max(0, top);
  else if (end > view.scrollTop + view.clientHeight) view.scrollTop = end - view.clientHeight;
}
