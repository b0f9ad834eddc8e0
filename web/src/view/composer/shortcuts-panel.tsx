/** The list of keyboard shortcuts, in a panel that is not modal. */

import type { Signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { keyLabels, SHORTCUTS, type Shortcut, type ShortcutSettings } from "../../composer/shortcuts";
import { CloseIcon } from "../icons";
import { strings } from "../../strings";

const GROUPS: readonly Shortcut["where"][] = ["writing", "anywhere", "list"];

export function ShortcutsButton({ isOpen }: { isOpen: Signal<boolean> }) {
  return (
    <button
      type="button"
      class="quiet-button icon-only shortcuts-button"
      aria-label={strings.shortcuts.title}
      title={strings.shortcuts.buttonHint}
      aria-expanded={isOpen.value}
      aria-controls={isOpen.value ? "shortcuts" : undefined}
      onClick={() => (isOpen.value = !isOpen.value)}
    >
      <span aria-hidden="true">?</span>
    </button>
  );
}

export function ShortcutsPanel({ settings, close }: { settings: ShortcutSettings; close: () => void }) {
  const panel = useRef<HTMLElement>(null);
  const before = useRef(document.activeElement);
  // Before the next key.
  useLayoutEffect(() => panel.current?.focus(), []);
  const leave = (): void => {
    close();
    (before.current as HTMLElement | null)?.focus();
  };
  return (
    <section
      ref={panel}
      id="shortcuts"
      class="shortcuts"
      aria-label={strings.shortcuts.title}
      tabIndex={-1}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        leave();
      }}
    >
      <button
        type="button"
        class="quiet-button small icon-only"
        aria-label={strings.common.close}
        title={strings.common.close}
        onClick={leave}
      >
        <CloseIcon />
      </button>
      {GROUPS.map((where) => {
        const found = (SHORTCUTS as readonly Shortcut[]).filter((each) => each.where === where);
        return found.length === 0 ? null : (
          <Group key={where} title={strings.shortcuts.groups[where]} shortcuts={found} settings={settings} />
        );
      })}
      <label class="single-keys">
        <input
          type="checkbox"
          checked={settings.mode.value === "all"}
          onChange={(event) => settings.mode.choose(event.currentTarget.checked ? "all" : "modified")}
        />
        {strings.shortcuts.singleKeys}
      </label>
    </section>
  );
}

interface GroupProps {
  readonly title: string;
  readonly shortcuts: readonly Shortcut[];
  readonly settings: ShortcutSettings;
}

function Group({ title, shortcuts, settings }: GroupProps) {
  return (
    <div>
      <h2>{title}</h2>
      <dl>
        {shortcuts.map((shortcut) => (
          <div key={shortcut.name}>
            <dt>
              {settings.keysOf(shortcut).map((each, index) => (
                <span key={each}>
                  {index > 0 && strings.shortcuts.or}
                  {keyLabels(each).map((key) => (
                    <kbd key={key}>{key}</kbd>
                  ))}
                </span>
              ))}
            </dt>
            <dd>{strings.shortcuts.actions[shortcut.name]}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
