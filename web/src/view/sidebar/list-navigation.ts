/** Keyboard navigation in a list, and a stable focus and scroll position while its lines change. */

import type { TargetedKeyboardEvent } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

export interface ListEntry {
  readonly id: string;
  /** Its position among selectable lines, from 1; undefined for a heading. */
  readonly number?: number | undefined;
}

/** The lines of a list, their indexes, and the scrolling element. */
export interface ListLines<Line extends ListEntry = ListEntry> {
  readonly lines: readonly Line[];
  readonly indexes: ReadonlyMap<string, number>;
  readonly scroller: { readonly current: HTMLElement | null };
}

/** The line height in pixels; users choose the size of a rem. */
export function useLineHeight(height: number, touchHeight: number): number {
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
  return Math.round(rem * (matchMedia("(pointer: coarse)").matches ? touchHeight : height));
}

/** Keep the focus when lines change; if its line is gone, focus the next one. */
export function useStableFocus({ lines, indexes, scroller }: ListLines, active: string | undefined) {
  const focus = useRef<string | null>(null);
  const isDrawing = useRef(true);
  const before = useRef(indexes);
  isDrawing.current = true;
  useLayoutEffect(() => {
    const leave = ({ relatedTarget }: FocusEvent): void => {
      // While lines move, the browser takes the focus from them.
      if (!isDrawing.current && !scroller.current?.contains(relatedTarget as Node | null)) focus.current = null;
    };
    scroller.current!.addEventListener("focusout", leave);
    return () => scroller.current?.removeEventListener("focusout", leave);
  }, []);
  /** The line that followed a removed one, or else preceded it, and is still there. */
  const nearest = (id: string): string | undefined => {
    const order = [...before.current.keys()];
    const at = order.indexOf(id);
    const isLeft = (each: string): boolean => indexes.has(each) && isChoice(lines[indexes.get(each)!]!);
    return [...order.slice(at + 1), ...order.slice(0, Math.max(at, 0)).reverse()].find(isLeft);
  };
  useLayoutEffect(() => {
    const id = focus.current;
    if (id !== null && document.activeElement === document.body) {
      const next = indexes.has(id) ? id : (nearest(id) ?? active);
      focus.current = next ?? null;
      if (next !== undefined) lineMain(scroller.current!, next)?.focus({ preventScroll: true });
    }
    before.current = indexes;
    isDrawing.current = false;
  });
  return focus;
}

/** Keep visible lines in place when lines change above them. */
export function useScrollAnchor({ lines, indexes, scroller }: ListLines, height: number): () => void {
  const anchor = useRef<{ id: string; below: number } | null>(null);
  const remember = (): void => {
    const { scrollTop } = scroller.current!;
    const at = Math.ceil(scrollTop / height);
    const line = lines.slice(at, at + 3).find(isChoice);
    anchor.current = line && scrollTop > 0 ? { id: line.id, below: indexes.get(line.id)! * height - scrollTop } : null;
  };
  useLayoutEffect(() => {
    const at = anchor.current && indexes.get(anchor.current.id);
    if (at != null) {
      const top = at * height - anchor.current!.below;
      if (Math.abs(top - scroller.current!.scrollTop) > 1) scroller.current!.scrollTop = top;
    }
    remember();
  }, [lines, height]);
  return remember;
}

function isChoice(line: ListEntry): boolean {
  return line.number !== undefined;
}

export function firstChoice<Line extends ListEntry>(lines: readonly Line[]): Line | undefined {
  return lines.find(isChoice);
}

export function lineMain(view: HTMLElement, id: string): HTMLElement | null {
  return view.querySelector<HTMLElement>(`[data-line="${CSS.escape(id)}"] .line-main`);
}

export function isLineMain(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.classList.contains("line-main");
}

export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLInputElement && target.type !== "checkbox";
}

/** The line that a key moves to. */
export function lineForKey<Line extends ListEntry>(
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

/** Whether a click on a link opens it here. With other buttons and keys the browser opens another tab. */
export function isPlainClick({ button, ctrlKey, metaKey, shiftKey, altKey }: MouseEvent): boolean {
  return button === 0 && !ctrlKey && !metaKey && !shiftKey && !altKey;
}
