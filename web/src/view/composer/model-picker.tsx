/** Choose the model that answers. The server lists agents among the models. */

import { useSignal, type Signal } from "@preact/signals";
import type { RefObject, TargetedKeyboardEvent } from "preact";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import type { ModelChoice } from "../../composer/model-choice";
import { safeText } from "../../markdown/safe-text";
import { CheckIcon, DownIcon } from "../icons";
import { useDismissal } from "../dismissal";
import { strings } from "../../strings";

/** With more models than this, the list has a filter. */
const FILTER_FROM = 8;

export function ModelPicker({ choice, onChoose }: { choice: ModelChoice; onChoose: () => void }) {
  const isOpen = useSignal(false);
  const box = useRef<HTMLSpanElement>(null);
  const list = useId();
  if (choice.name.value === null) return null;
  const name = safeText(choice.name.value);
  if (choice.names.value.length === 1) {
    return (
      <span class="model one-line" dir="auto" title={strings.models.label}>
        <span class="visually-hidden">{strings.models.named("")}</span>
        {safeText(name)}
      </span>
    );
  }
  return (
    <span ref={box} class="model-picker">
      <button
        type="button"
        class="quiet-button model"
        aria-label={strings.models.named(safeText(name))}
        title={strings.models.choose}
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
          {safeText(name)}
        </span>
        <DownIcon size={14} />
      </button>
      {isOpen.value && <Choices id={list} choice={choice} onChoose={onChoose} isOpen={isOpen} box={box} />}
    </span>
  );
}

interface ChoicesProps {
  readonly id: string;
  readonly choice: ModelChoice;
  readonly onChoose: () => void;
  readonly isOpen: Signal<boolean>;
  readonly box: RefObject<HTMLElement | null>;
}

function Choices({ id, choice, onChoose, isOpen, box }: ChoicesProps) {
  const query = useSignal("");
  const names = choice.names.value;
  const found = names.filter((each) => each.toLowerCase().includes(query.value.trim().toLowerCase()));
  const at = useSignal(Math.max(0, names.indexOf(choice.name.value ?? "")));
  const focused = useRef<HTMLElement>(null);
  const hasFilter = names.length > FILTER_FROM;
  useDismissal(
    (at) => Boolean(box.current?.contains(at)),
    () => (isOpen.value = false),
  );
  // Before the next keystroke.
  useLayoutEffect(() => focused.current?.focus(), []);
  useEffect(() => document.getElementById(`${id}-${at.value}`)?.scrollIntoView({ block: "nearest" }), [at.value]);
  const take = (name: string | undefined): void => {
    if (name === undefined) return;
    choice.choose(name);
    isOpen.value = false;
    onChoose();
  };
  const press = (event: TargetedKeyboardEvent<HTMLElement>): void => {
    const { key } = event;
    const next = hasFilter && /^(Home|End)$/.test(key) ? undefined : indexForKey(key, at.value, found.length);
    if (next !== undefined) at.value = next;
    else if (key === "Enter" || (key === " " && !hasFilter)) take(found[at.value]);
    else if (key === "Escape" || key === "Tab") {
      isOpen.value = false;
      box.current?.querySelector("button")?.focus();
      if (key === "Tab") return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const active = found.length > 0 ? `${id}-${at.value}` : undefined;
  const filter = (text: string): void => {
    query.value = text;
    at.value = 0;
  };
  return (
    <div class="model-choices" onKeyDown={press}>
      {hasFilter && (
        <ModelFilter field={focused as RefObject<HTMLInputElement>} list={id} active={active} filter={filter} />
      )}
      {found.length > 0 ? (
        <ul
          ref={hasFilter ? undefined : (focused as RefObject<HTMLUListElement>)}
          id={id}
          role="listbox"
          aria-label={strings.models.label}
          tabIndex={0}
          aria-activedescendant={active}
        >
          {found.map((name, index) => (
            <Choice key={name} id={`${id}-${index}`} name={name} index={index} at={at} choice={choice} take={take} />
          ))}
        </ul>
      ) : (
        <p class="quiet-text">{strings.models.none}</p>
      )}
    </div>
  );
}

interface ModelFilterProps {
  readonly field: RefObject<HTMLInputElement>;
  readonly list: string;
  readonly active: string | undefined;
  readonly filter: (text: string) => void;
}

function ModelFilter({ field, list, active, filter }: ModelFilterProps) {
  return (
    <input
      ref={field}
      class="field"
      role="combobox"
      aria-label={strings.models.find}
      placeholder={strings.models.find}
      aria-expanded="true"
      aria-controls={active === undefined ? undefined : list}
      aria-activedescendant={active}
      autocomplete="off"
      onInput={(event) => filter(event.currentTarget.value)}
    />
  );
}

interface ChoiceProps {
  readonly id: string;
  readonly name: string;
  readonly index: number;
  readonly at: Signal<number>;
  readonly choice: ModelChoice;
  readonly take: (name: string) => void;
}

function Choice({ id, name, index, at, choice, take }: ChoiceProps) {
  const isChosen = name === choice.name.value;
  return (
    <li
      id={id}
      role="option"
      class={index === at.value ? "active" : undefined}
      aria-selected={isChosen}
      onPointerMove={() => (at.value = index)}
      onClick={() => take(name)}
    >
      <span class="menu-icon">{isChosen && <CheckIcon size={16} />}</span>
      <span dir="auto">{safeText(name)}</span>
    </li>
  );
}

/** The index that a key moves to; undefined: none. */
function indexForKey(key: string, at: number, count: number): number | undefined {
  if (key === "ArrowDown") return Math.min(at + 1, Math.max(0, count - 1));
  if (key === "ArrowUp") return Math.max(at - 1, 0);
  if (key === "Home") return 0;
  return key === "End" ? Math.max(0, count - 1) : undefined;
}
