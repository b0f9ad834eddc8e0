/** Stop a running answer and keep it as far as it got, or discard it. */

import type { Composer } from "../../composer/composer";
import { StopIcon, TrashIcon, DownIcon } from "../icons";
import { Menu } from "../menu";

export function StopButton({ composer, stopped }: { composer: Composer; stopped: () => void }) {
  const stop = (policy: "keep" | "discard"): void => {
    // The button disappears with the turn.
    stopped();
    composer.stop(policy);
  };
  return (
    <span class="stop">
      <button
        type="button"
        class="button"
        aria-label="Stop"
        title="Stop, and keep what was said (Esc)"
        onMouseDown={(event) => event.preventDefault()}
        onClick={(event) => {
          // The second click of a double click would hit the next element.
          if (event.detail < 2) stop(event.shiftKey ? "discard" : "keep");
        }}
      >
        <StopIcon />
        <span>Stop</span>
      </button>
      <Menu
        label="Other ways to end it"
        class="button icon-only"
        entries={[
          {
            label: "Stop and keep",
            icon: <StopIcon />,
            hint: "What was said so far stays in the chat.",
            run: () => stop("keep"),
          },
          {
            label: "Stop and discard",
            icon: <TrashIcon />,
            hint: "As if it had never been asked. Your message comes back to you.",
            isBad: true,
            run: () => stop("discard"),
          },
        ]}
      >
        <DownIcon size={14} />
      </Menu>
    </span>
  );
}
