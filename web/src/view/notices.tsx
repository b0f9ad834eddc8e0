/** Short messages at the edge of the page. */

import { useEffect } from "preact/hooks";
import type { Notice, Notices } from "../session/notices";

export function NoticesView({ notices }: { notices: Notices }) {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.shown.value.map((notice) => (
        <NoticeView key={notice.number} notice={notice} close={() => notices.remove(notice.number)} />
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
      <span dir="auto">{notice.text}</span>
      {action && (
        <button
          type="button"
          onClick={() => {
            close();
            action.run();
          }}
        >
          {action.label}
        </button>
      )}
      <button type="button" class="quiet" aria-label="Close" onClick={close}>
        ×
      </button>
    </div>
  );
}
