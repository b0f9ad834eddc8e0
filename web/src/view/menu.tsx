/** A button and the menu that it opens: with arrow keys, Escape, letters, and a click outside. It is not modal. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { safeText } from "../markdown/safe-text";
import { CheckIcon } from "./icons";
import { useDismissal } from "./dismissal";

interface MenuItem {
  readonly label: string;
  readonly icon?: ComponentChildren;
  /** A hint below the label. */
  readonly hint?: string | undefined;
  /** Whether this choice is selected; undefined: it is an action. */
  readonly isChecked?: boolean | undefined;
  readonly isDisabled?: boolean | undefined;
  /** Whether it destroys something. */
  readonly isBad?: boolean | undefined;
  /** Whether the menu stays open afterwards, as for actions that need a second press. */
  readonly staysOpen?: boolean | undefined;
  run(): void;
}

/** `line`: a separator. */
export type MenuEntry = MenuItem | "line";

interface MenuProps {
  /** The accessible name of the button; for an icon button the only one. */
  readonly label: string;
  readonly entries: readonly MenuEntry[];
  readonly children: ComponentChildren;
  readonly class?: string;
  readonly onToggle?: (isOpen: boolean) => void;
}

export function Menu({ entries, children, class: style = "quiet-button icon-only", onToggle, ...props }: MenuProps) {
  const button = useRef<HTMLButtonElement>(null);
  const isOpen = useSignal<"first" | "last" | null>(null);
  const name = useId();
  const label = safeText(props.label);
  const open = (which: "first" | "last" | null, run?: () => void): void => {
    if (isOpen.value === which) return;
    isOpen.value = which;
    // The action runs before `onToggle` reports the close.
    run?.();
    onToggle?.(which !== null);
  };
  const close = (run?: () => void): void => {
    button.current?.focus();
    open(null, run);
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        class={style}
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={isOpen.value !== null}
        aria-controls={isOpen.value !== null ? name : undefined}
        onClick={() => open(isOpen.value === null ? "first" : null)}
        onKeyDown={(event) => {
          if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
          event.preventDefault();
          open(event.key === "ArrowDown" ? "first" : "last");
        }}
      >
        {children}
      </button>
      {isOpen.value !== null && (
        <List
          name={name}
          label={label}
          entries={entries}
          button={button.current!}
          begin={isOpen.value}
          close={close}
          leave={() => open(null)}
        />
      )}
    </>
  );
}

interface ListProps {
  readonly name: string;
  readonly label: string;
  readonly entries: readonly MenuEntry[];
  readonly button: HTMLElement;
  readonly begin: "first" | "last";
  /** Close it, focus the button, and run the action. */
  readonly close: (run?: () => void) => void;
  /** Close it: the user went elsewhere. */
  readonly leave: () => void;
}

function List({ name, label, entries, button, begin, close, leave }: ListProps) {
  const list = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const shown = list.current!;
    // In the top layer, so that no box clips it. Browsers without popovers use its fixed position.
    if ("showPopover" in shown) shown.showPopover();
    position(shown, button);
    itemsOf(shown).at(begin === "first" ? 0 : -1)?.focus({ preventScroll: true });
    const reposition = (): void => position(shown, button);
    addEventListener("scroll", reposition, { capture: true, passive: true });
    addEventListener("resize", reposition);
    return () => {
      removeEventListener("scroll", reposition, { capture: true });
      removeEventListener("resize", reposition);
    };
  }, []);
  useDismissal((at) => Boolean(list.current?.contains(at)) || button.contains(at), leave);
  return (
    <div
      ref={list}
      id={name}
      class="menu"
      role="menu"
      aria-label={label}
      popover="manual"
      onKeyDown={(event) => walk(event, close)}
      onClick={(event) => event.stopPropagation()}
    >
      {entries.map((entry, number) =>
        // Keyed by index: an item that needs a second press changes its label and keeps the focus.
        entry === "line" ? <div key={number} role="separator" /> : <Item key={number} item={entry} close={close} />,
      )}
    </div>
  );
}

function Item({ item, close }: { item: MenuItem; close: (run: () => void) => void }) {
  const isChoice = item.isChecked !== undefined;
  return (
    <button
      type="button"
      role={isChoice ? "menuitemradio" : "menuitem"}
      class={item.isBad ? "menu-item bad" : "menu-item"}
      aria-checked={isChoice ? item.isChecked : undefined}
      aria-disabled={item.isDisabled ? true : undefined}
      tabIndex={-1}
      onClick={(event) => {
        // A double click or a held key does not confirm a destructive action.
        if (item.isDisabled || (item.isBad && event.detail > 1)) return;
        // The button has the focus again before the action may move it.
        if (item.staysOpen) item.run();
        else close(() => item.run());
      }}
      onKeyDown={(event) => item.isBad && event.repeat && event.key === "Enter" && event.preventDefault()}
      onPointerEnter={(event) => event.currentTarget.focus({ preventScroll: true })}
    >
      <span class="menu-icon">{isChoice ? item.isChecked && <CheckIcon /> : item.icon}</span>
      <span class="menu-text">
        <span dir="auto">{safeText(item.label)}</span>
        {item.hint !== undefined && <small dir="auto">{safeText(item.hint)}</small>}
      </span>
    </button>
  );
}

function itemsOf(list: HTMLElement): HTMLElement[] {
  return [...list.querySelectorAll<HTMLElement>(".menu-item")];
}

function walk(event: TargetedKeyboardEvent<HTMLElement>, close: () => void): void {
  const items = itemsOf(event.currentTarget);
  const current = items.indexOf(document.activeElement as HTMLElement);
  const go = (to: number): void => items.at(to % items.length)?.focus();
  const { key } = event;
  if (key === "ArrowDown") go(current + 1);
  else if (key === "ArrowUp") go(Math.max(current, 0) - 1);
  else if (key === "Home") go(0);
  else if (key === "End") go(-1);
  else if (key === "Escape" || key === "Tab") close();
  else if (key.length === 1 && key !== " " && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const found = [...items.slice(current + 1), ...items].find((each) => beginsWith(each, key));
    if (!found) return;
    found.focus();
  } else return;
  event.stopPropagation();
  // Tab continues after the button.
  if (key !== "Tab") event.preventDefault();
}

function beginsWith(item: HTMLElement, letter: string): boolean {
  return (item.textContent ?? "").trim().toLowerCase().startsWith(letter.toLowerCase());
}

/** Place the list below its button, or above it where there is more room, within the window. */
function position(list: HTMLElement, button: HTMLElement): void {
  const at = button.getBoundingClientRect();
  const width = document.documentElement.clientWidth;
  const height = innerHeight;
  const isUp = at.bottom + list.offsetHeight > height - 8 && at.top > height - at.bottom;
  list.style.maxBlockSize = `${(isUp ? at.top : height - at.bottom) - 16}px`;
  const left = at.left + at.right < width ? at.left : at.right - list.offsetWidth;
  list.style.left = `${Math.max(8, Math.min(left, width - list.offsetWidth - 8))}px`;
  list.style.top = `${isUp ? Math.max(8, at.top - list.offsetHeight - 4) : at.bottom + 4}px`;
}
