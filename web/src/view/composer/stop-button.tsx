/** Stop a running answer, and keep or discard its text so far. */

import type { Composer } from "../../composer/composer";
import { StopIcon, TrashIcon, DownIcon } from "../icons";
import { Menu } from "../menu";
import { strings } from "../../strings";

export function StopButton({ composer, onStop }: { composer: Composer; onStop: () => void }) {
  const stop = (policy: "keep" | "discard"): void => {
    // The button disappears with the turn.
    onStop();
    composer.stop(policy);
  };
  return (
    <span class="stop">
      <button
        type="button"
        class="button"
        aria-label={strings.composer.stop}
        title={strings.composer.stopHint}
        onMouseDown={(event) => event.preventDefault()}
        onClick={(event) => {
          // The second click of a double click would hit the next element.
          if (event.detail < 2) stop(event.shiftKey ? "discard" : "keep");
        }}
      >
        <StopIcon />
        <span>{strings.composer.stop}</span>
      </button>
      <Menu
        label={strings.composer.stopOptions}
        class="button icon-only"
        entries={[
          {
            label: strings.composer.stopAndKeep,
            icon: <StopIcon />,
            hint: strings.composer.stopAndKeepHint,
            run: () => stop("keep"),
          },
          {
            label: strings.composer.stopAndDiscard,
            icon: <TrashIcon />,
            hint: strings.composer.stopAndDiscardHint,
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
