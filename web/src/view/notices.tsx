/** Notices at the edge of the page, and the one live region for screen readers. */

import { useEffect } from "preact/hooks";
import type { Notice, Notices } from "../session/notices";
import { CloseIcon, WarningIcon } from "./icons";
import { strings } from "../strings";

export function NoticesView({ notices }: { notices: Notices }) {
  return (
    <section class="notices" aria-label={strings.layout.notifications}>
      {notices.shown.value.map((notice) => (
        <NoticeView key={notice.number} notice={notice} close={() => notices.remove(notice.number)} />
      ))}
    </section>
  );
}

/** One for the whole page: several live regions interrupt each other. */
export function StatusView({ notices }: { notices: Notices }) {
  return (
    <div class="visually-hidden" role="status" aria-atomic="false">
      {notices.announced.value.map(({ number, text }) => (
        <p key={number}>{text}</p>
      ))}
    </div>
  );
}

function NoticeView({ notice, close }: { notice: Notice; close: () => void }) {
  useEffect(() => {
    if (notice.stays === undefined) return undefined;
    const timer = setTimeout(close, notice.stays);
    return () => clearTimeout(timer);
  }, [notice.number]);
  const { action } = notice;
  return (
    <div class={`notice ${notice.kind}`}>
      {notice.kind === "problem" && <WarningIcon />}
      <span class="notice-text" dir="auto">
        {notice.text}
      </span>
      {action && (
        <button
          type="button"
          class="button small"
          onClick={() => {
            close();
            action.run();
          }}
        >
          {action.label}
        </button>
      )}
      <button
        type="button"
        class="quiet-button icon-only small"
        aria-label={strings.common.close}
        title={strings.common.close}
        onClick={close}
      >
        <CloseIcon size={16} />
      </button>
    </div>
  );
}
