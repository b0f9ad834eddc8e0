/** Whom to ask: models and agents by name. */

import { useSignal, type Signal } from "@preact/signals";
import type { RefObject, TargetedKeyboardEvent } from "preact";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import type { ModelChoice } from "../../composing/models";
import { CheckIcon, DownIcon } from "../icons";

/** Among more than these, one is sought by its name. */
const MANY = 8;

export function ModelPicker({ choice, chosen }: { choice: ModelChoice; chosen: () => void }) {
  const isOpen = useSignal(false);
  const box = useRef<HTMLSpanElement>(null);
  const list = useId();
  const name = choice.name.value;
  if (name === null) return null;
  if (choice.names.value.length === 1) {
    return (
      <span class="model one-line" dir="auto" title="Who answers">
        <span class="visually-hidden">Model: </span>
        {name}
      </span>
    );
  }
  return (
    <span ref={box} class="model-picker">
      <button
        type="button"
        class="quiet-button model"
        aria-label={`Model: ${name}`}
        title="Who answers"
        aria-haspopup="listbox"
        aria-expanded={isOpen.value}
        aria-controls={isOpen.value ? list : undefined}
        onClick={() => (isOpen.value = !isOpen.value)}
        onKeyDown={(event) => {
          if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
          event.preventDefault();
          isOpen.value = true;
        }}
      >
        <span class="one-line" dir="auto">
          {name}
        </span>
        <DownIcon size={14} />
      </button>
      {isOpen.value && <Choices id={list} choice={choice} chosen={chosen} isOpen={isOpen} box={box} />}
    </span>
  );
}

interface ChoicesProps {
  readonly id: string;
  readonly choice: ModelChoice;
  readonly chosen: () => void;
  readonly isOpen: Signal<boolean>;
  readonly box: RefObject<HTMLElement | null>;
}

function Choices({ id, choice, chosen, isOpen, box }: ChoicesProps) {
  const sought = useSignal("");
  const names = choice.names.value;
  const found = names.filter((each) => each.toLowerCase().includes(sought.value.trim().toLowerCase()));
  const at = useSignal(Math.max(0, names.indexOf(choice.name.value ?? "")));
  const here = useRef<HTMLElement>(null);
  useLeaving(box, isOpen);
  useLayoutEffect(() => here.current?.focus(), []);
  useEffect(() => document.getElementById(`${id}-${at.value}`)?.scrollIntoView({ block: "nearest" }), [at.value]);
  const take = (name: string | undefined): void => {
    if (name === undefined) return;
    choice.choose(name);
    isOpen.value = false;
    chosen();
  };
  const press = (event: TargetedKeyboardEvent<HTMLElement>): void => {
    const { key } = event;
    const last = found.length - 1;
    if (key === "ArrowDown") at.value = Math.min(at.value + 1, last);
    else if (key === "ArrowUp") at.value = Math.max(at.value - 1, 0);
    else if (key === "Home" && names.length <= MANY) at.value = 0;
    else if (key === "End" && names.length <= MANY) at.value = last;
    else if (key === "Enter") take(found[at.value]);
    else if (key === " " && names.length <= MANY) take(found[at.value]);
    else if (key === "Escape" || key === "Tab") {
      isOpen.value = false;
      box.current?.querySelector("button")?.focus();
      if (key === "Tab") return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const active = found.length > 0 ? `${id}-${at.value}` : undefined;
  return (
    <div class="model-choices" onKeyDown={press}>
      {names.length > MANY && (
        <input
          ref={here as RefObject<HTMLInputElement>}
          class="field"
          role="combobox"
          aria-label="Find a model"
          placeholder="Find a model"
          aria-expanded="true"
          aria-controls={id}
          aria-activedescendant={active}
          autocomplete="off"
          onInput={(event) => {
            sought.value = event.currentTarget.value;
            at.value = 0;
          }}
        />
      )}
      <ul
        ref={names.length > MANY ? undefined : (here as RefObject<HTMLUListElement>)}
        id={id}
        role="listbox"
        aria-label="Model"
        tabIndex={0}
        aria-activedescendant={active}
      >
        {found.map((name, place) => (
          <li
            key={name}
            id={`${id}-${place}`}
            role="option"
            class={place === at.value ? "active" : undefined}
            aria-selected={name === choice.name.value}
            onPointerMove={() => (at.value = place)}
            onClick={() => take(name)}
          >
            <span class="menu-icon">{name === choice.name.value && <CheckIcon size={16} />}</span>
            <span dir="auto">{name}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="quiet-text">None is called so.</p>}
    </div>
  );
}

/** Close it for whoever goes elsewhere. */
function useLeaving(box: RefObject<HTMLElement | null>, isOpen: Signal<boolean>): void {
  useEffect(() => {
    const elsewhere = (event: Event): void => {
      if (!box.current?.contains(event.target as Node)) isOpen.value = false;
    };
    document.addEventListener("pointerdown", elsewhere, true);
    document.addEventListener("focusin", elsewhere);
    return () => {
      document.removeEventListener("pointerdown", elsewhere, true);
      document.removeEventListener("focusin", elsewhere);
    };
  }, []);
}
