/** A button and the menu that it opens: with arrow keys, Escape, letters, and a click outside. It is not modal. An item
 * may open a submenu. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { safeText } from "../markdown/safe-text";
import { CheckIcon, RightIcon } from "./icons";
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

/** An item that opens a list of further ones. */
interface Submenu {
  readonly label: string;
  readonly icon?: ComponentChildren;
  readonly entries: readonly MenuEntry[];
}

/** `line`: a separator. */
export type MenuEntry = MenuItem | Submenu | "line";

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
  /** Of a submenu: close only that. */
  readonly back?: () => void;
}

function List({ name, label, entries, button, begin, close, leave, back }: ListProps) {
  const list = useRef<HTMLDivElement>(null);
  const opened = useSignal<number | null>(null);
  useLayoutEffect(() => {
    const shown = list.current!;
    // In the top layer, so that no box clips it. Browsers without popovers use its fixed position.
    if ("showPopover" in shown) shown.showPopover();
    const reposition = (): void => (back ? positionBeside : position)(shown, button);
    reposition();
    itemsOf(shown).at(begin === "first" ? 0 : -1)?.focus({ preventScroll: true });
    addEventListener("scroll", reposition, { capture: true, passive: true });
    addEventListener("resize", reposition);
    return () => {
      removeEventListener("scroll", reposition, { capture: true });
      removeEventListener("resize", reposition);
    };
  }, []);
  // A submenu leaves that to its menu, which contains it.
  useDismissal((at) => back !== undefined || Boolean(list.current?.contains(at)) || button.contains(at), leave);
  return (
    <div
      ref={list}
      id={name}
      class="menu"
      role="menu"
      aria-label={label}
      popover="manual"
      onKeyDown={(event) => walk(event, close, back)}
      onClick={(event) => event.stopPropagation()}
    >
      {entries.map((entry, number) => {
        // Keyed by index: an item that needs a second press changes its label and keeps the focus.
        if (entry === "line") return <div key={number} role="separator" />;
        if (!("entries" in entry)) {
          return <Item key={number} item={entry} close={close} onFocus={() => (opened.value = null)} />;
        }
        const toggle = (isOpen: boolean): void => {
          opened.value = isOpen ? number : null;
        };
        return <SubmenuItem key={number} item={entry} isOpen={opened.value === number} {...{ toggle, close, leave }} />;
      })}
    </div>
  );
}

interface SubmenuProps extends Pick<ListProps, "close" | "leave"> {
  readonly item: Submenu;
  readonly isOpen: boolean;
  readonly toggle: (isOpen: boolean) => void;
}

function SubmenuItem({ item, isOpen, toggle, close, leave }: SubmenuProps) {
  const button = useRef<HTMLButtonElement>(null);
  const name = useId();
  const label = safeText(item.label);
  const back = (): void => {
    button.current?.focus();
    toggle(false);
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        role="menuitem"
        class="menu-item"
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-controls={isOpen ? name : undefined}
        tabIndex={-1}
        onClick={() => (isOpen ? back() : toggle(true))}
        onPointerEnter={(event) => !isOpen && event.currentTarget.focus({ preventScroll: true })}
      >
        <span class="menu-icon">{item.icon}</span>
        <span class="menu-text" dir="auto">
          {label}
        </span>
        <RightIcon size={16} />
      </button>
      {isOpen && (
        <List
          name={name}
          label={label}
          entries={item.entries}
          button={button.current!}
          begin="first"
          {...{ close, leave, back }}
        />
      )}
    </>
  );
}

interface ItemProps {
  readonly item: MenuItem;
  readonly close: (run: () => void) => void;
  readonly onFocus: () => void;
}

function Item({ item, close, onFocus }: ItemProps) {
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
      onFocus={onFocus}
    >
      <span class="menu-icon">{isChoice ? item.isChecked && <CheckIcon /> : item.icon}</span>
      <span class="menu-text">
        <span dir="auto">{safeText(item.label)}</span>
        {item.hint !== undefined && <small dir="auto">{safeText(item.hint)}</small>}
      </span>
    </button>
  );
}

/** The items of a list, without those of its submenus. */
function itemsOf(list: HTMLElement): HTMLElement[] {
  return [...list.children].filter((each): each is HTMLElement => each.matches(".menu-item"));
}

function walk(event: TargetedKeyboardEvent<HTMLElement>, close: () => void, back: (() => void) | undefined): void {
  if (event.defaultPrevented) return; // a submenu has handled it
  const items = itemsOf(event.currentTarget);
  const focused = document.activeElement as HTMLElement;
  const current = items.indexOf(focused);
  const [inward, outward] = isRightToLeft(event.currentTarget)
    ? ["ArrowLeft", "ArrowRight"]
    : ["ArrowRight", "ArrowLeft"];
  const go = (to: number): void => items.at(to % items.length)?.focus();
  const { key } = event;
  if (key === "ArrowDown") go(current + 1);
  else if (key === "ArrowUp") go(Math.max(current, 0) - 1);
  else if (key === "Home") go(0);
  else if (key === "End") go(-1);
  else if (back && (key === "Escape" || key === outward)) back();
  else if (key === inward && focused.hasAttribute("aria-haspopup")) focused.click();
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

function isRightToLeft(element: HTMLElement): boolean {
  return getComputedStyle(element).direction === "rtl";
}

/** Place a submenu beside its item, where there is room; over the menu on narrow screens. */
function positionBeside(list: HTMLElement, item: HTMLElement): void {
  const at = item.getBoundingClientRect();
  const width = document.documentElement.clientWidth;
  const { offsetWidth } = list;
  list.style.maxBlockSize = `${innerHeight - 16}px`;
  const isAfter = at.right + offsetWidth <= width - 8;
  const isBefore = at.left - offsetWidth >= 8;
  const side = isAfter && !(isRightToLeft(item) && isBefore) ? at.right : at.left - offsetWidth;
  list.style.left = `${isAfter || isBefore ? side : Math.max(8, width - offsetWidth - 8)}px`;
  const top = isAfter || isBefore ? at.top - 4 : at.bottom;
  list.style.top = `${Math.max(8, Math.min(top, innerHeight - list.offsetHeight - 8))}px`;
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
