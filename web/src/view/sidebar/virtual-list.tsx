/** A list of any length, of which only the lines that are seen are there, and the one that has the focus. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";

export interface Entry {
  readonly id: string;
  /** Its place among those that can be chosen, from 1; undefined: it is none of them, but stands over them. */
  readonly number?: number | undefined;
}

export interface VirtualListProps<Line extends Entry> {
  readonly label: string;
  readonly lines: readonly Line[];
  /** Of each line, in rem; and where fingers point. */
  readonly height: number;
  readonly touchHeight: number;
  /** How many can be chosen in all; -1: nobody knows. */
  readonly count: number;
  /** The line that Tab leads to; null: the first. */
  readonly active: string | null;
  readonly onActive: (id: string) => void;
  /** Told how many lines are wanted, whenever that may be more than before. */
  readonly onNeed: (count: number) => void;
  /** Keys that are not for walking about. */
  readonly onKey?: ((event: TargetedKeyboardEvent<HTMLElement>, line: Line) => void) | undefined;
  /** What a line shows. What takes the focus in it has the class `line-main`, and `tabIndex` if it is the active one. */
  readonly children: (line: Line, tabIndex: 0 | -1) => ComponentChildren;
}

/** Lines above and below what is seen, so that fast fingers find something. */
const BEYOND = 10;

export function VirtualList<Line extends Entry>(props: VirtualListProps<Line>) {
  const { lines, label, count, children, onNeed, onKey } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const height = useLineHeight(props.height, props.touchHeight);
  const first = useSignal(0);
  const seen = useSignal(30);
  const places = useMemo(() => new Map(lines.map(({ id }, at) => [id, at])), [lines]);
  const chosen = props.active !== null && places.has(props.active) ? props.active : firstOf(lines)?.id;
  const focus = useKeptFocus(scroller, lines, places, chosen);
  const anchor = useAnchor(scroller, lines, places, height);

  const look = (): void => {
    const { scrollTop, clientHeight } = scroller.current!;
    first.value = Math.floor(scrollTop / height);
    seen.value = Math.ceil(clientHeight / height) + 1;
    anchor();
  };
  useLayoutEffect(() => {
    look();
    const watch = new ResizeObserver(look);
    watch.observe(scroller.current!);
    return () => watch.disconnect();
  }, [height]);
  const wanted = first.value + 2 * seen.value + BEYOND;
  useEffect(() => onNeed(wanted), [wanted, lines]);

  const from = Math.max(0, Math.min(first.value, lines.length - seen.value) - BEYOND);
  const to = Math.min(lines.length, first.value + seen.value + BEYOND);
  const shown = Array.from({ length: Math.max(0, to - from) }, (_, at) => from + at);
  const kept = places.get(focus.current ?? "");
  if (kept !== undefined && kept < from) shown.unshift(kept);
  if (kept !== undefined && kept >= to) shown.push(kept);

  const go = (id: string): void => {
    const at = places.get(id)!;
    const view = scroller.current!;
    // The heading over the first line of a day is seen with it.
    const top = (lines[at - 1]?.number === undefined ? at - 1 : at) * height;
    if (top < view.scrollTop) view.scrollTop = Math.max(0, top);
    else if ((at + 1) * height > view.scrollTop + view.clientHeight) view.scrollTop = (at + 1) * height - view.clientHeight;
    look();
    focus.current = id;
    props.onActive(id);
    mainOf(view, id)?.focus({ preventScroll: true });
  };

  return (
    <div
      ref={scroller}
      class="lines"
      onScroll={look}
      onFocusIn={({ target }) => {
        const id = (target as HTMLElement).closest<HTMLElement>("[data-line]")?.dataset["line"];
        if (id === undefined) return;
        focus.current = id;
        if (id !== props.active) props.onActive(id);
      }}
      onKeyDown={(event) => {
        const line = lines[places.get(focus.current ?? "") ?? -1];
        if (line === undefined || isTyping(event.target)) return;
        const next = isMain(event.target) ? walk(event, lines, places.get(line.id)!, seen.value - 2) : undefined;
        if (next === undefined) onKey?.(event, line);
        else {
          event.preventDefault();
          go(next.id);
        }
      }}
    >
      <ul role="list" aria-label={label} style={{ blockSize: `${lines.length * height}px` }}>
        {shown.map((at) => {
          const line = lines[at]!;
          return (
            <li
              key={line.id}
              data-line={line.id}
              class={line.number === undefined ? "line heading" : "line"}
              style={{ insetBlockStart: `${at * height}px`, blockSize: `${height}px` }}
              aria-setsize={line.number === undefined ? undefined : count}
              aria-posinset={line.number}
            >
              {children(line, line.id === chosen ? 0 : -1)}
            </li>
          );
        })}
      </ul>
    </div>
  );
}

/** In pixels; people choose how large a rem is. */
function useLineHeight(height: number, touchHeight: number): number {
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
  return Math.round(rem * (matchMedia("(pointer: coarse)").matches ? touchHeight : height));
}

/** Who has the focus keeps it when lines come, go and move; where his line went, the one in its place has it. */
function useKeptFocus(
  scroller: { readonly current: HTMLElement | null },
  lines: readonly Entry[],
  places: ReadonlyMap<string, number>,
  active: string | undefined,
) {
  const focus = useRef<string | null>(null);
  const isDrawing = useRef(true);
  const before = useRef(places);
  isDrawing.current = true;
  useEffect(() => {
    const leave = ({ relatedTarget }: FocusEvent): void => {
      // While lines are drawn, the browser takes it from those that are moved.
      if (!isDrawing.current && !scroller.current?.contains(relatedTarget as Node | null)) focus.current = null;
    };
    scroller.current!.addEventListener("focusout", leave);
    return () => scroller.current?.removeEventListener("focusout", leave);
  }, []);
  useLayoutEffect(() => {
    const id = focus.current;
    if (id !== null && document.activeElement === document.body) {
      const at = Math.min(before.current.get(id) ?? 0, lines.length - 1);
      const near = places.has(id) ? id : ([...lines.slice(at), ...lines.slice(0, at).reverse()].find(isChoice)?.id ?? active);
      focus.current = near ?? null;
      if (near !== undefined) mainOf(scroller.current!, near)?.focus({ preventScroll: true });
    }
    before.current = places;
    isDrawing.current = false;
  });
  return focus;
}

/** What is seen stays where it is when lines come or go above it. */
function useAnchor(
  scroller: { readonly current: HTMLElement | null },
  lines: readonly Entry[],
  places: ReadonlyMap<string, number>,
  height: number,
): () => void {
  const anchor = useRef<{ id: string; below: number } | null>(null);
  const remember = (): void => {
    const { scrollTop } = scroller.current!;
    const at = Math.ceil(scrollTop / height);
    const line = lines.slice(at, at + 3).find(isChoice);
    anchor.current = line && scrollTop > 0 ? { id: line.id, below: places.get(line.id)! * height - scrollTop } : null;
  };
  useLayoutEffect(() => {
    const at = anchor.current && places.get(anchor.current.id);
    if (at != null) {
      const top = at * height - anchor.current!.below;
      if (Math.abs(top - scroller.current!.scrollTop) > 1) scroller.current!.scrollTop = top;
    }
    remember();
  }, [lines, height]);
  return remember;
}

function isChoice(line: Entry): boolean {
  return line.number !== undefined;
}

function firstOf<Line extends Entry>(lines: readonly Line[]): Line | undefined {
  return lines.find(isChoice);
}

function mainOf(view: HTMLElement, id: string): HTMLElement | null {
  return view.querySelector<HTMLElement>(`[data-line="${CSS.escape(id)}"] .line-main`);
}

function isMain(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.classList.contains("line-main");
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLInputElement;
}

/** The line that a key leads to. */
function walk<Line extends Entry>(
  event: TargetedKeyboardEvent<HTMLElement>,
  lines: readonly Line[],
  at: number,
  page: number,
): Line | undefined {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return undefined;
  const up = lines.slice(0, at).filter(isChoice).reverse();
  const down = lines.slice(at + 1).filter(isChoice);
  switch (event.key) {
    case "ArrowDown":
      return down[0] ?? lines[at];
    case "ArrowUp":
      return up[0] ?? lines[at];
    case "PageDown":
      return down[Math.min(page, down.length) - 1] ?? lines[at];
    case "PageUp":
      return up[Math.min(page, up.length) - 1] ?? lines[at];
    case "Home":
      return up.at(-1) ?? lines[at];
    case "End":
      return down.at(-1) ?? lines[at];
    default:
      return undefined;
  }
}
