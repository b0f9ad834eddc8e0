/** Icons. None is the only label of a control. */

import type { JSX } from "preact";

interface IconOptions {
  readonly isFilled?: boolean;
  /** Whether it points along the line, and is mirrored in right-to-left text. */
  readonly flips?: boolean;
}

/** An icon on a 24-unit square, in the text colour, `size` pixels high. */
function icon(path: string, { isFilled = false, flips = false }: IconOptions = {}) {
  return function Icon({ size = 18 }: { size?: number }): JSX.Element {
    return (
      <svg
        class={flips ? "icon flips" : "icon"}
        viewBox="0 0 24 24"
        width={size}
        height={size}
        fill={isFilled ? "currentColor" : "none"}
        stroke="currentColor"
        stroke-width="1.75"
        stroke-linecap="round"
        stroke-linejoin="round"
        aria-hidden="true"
        focusable="false"
      >
        <path d={path} />
      </svg>
    );
  };
}

const MARK_GROUND =
  "M8 2h16a6 6 0 0 1 6 6v12a6 6 0 0 1-6 6H13l-6.3 4.7c-.7.5-1.7 0-1.7-.8v-4.7a6 6 0 0 1-3-5.2V8a6 6 0 0 1 6-6z";
const MARK_LINES = "M9 10h14M9 15h14M9 20h7";
const PIN = "M9 4h6l-.8 6.2 3.3 3.3H6.5l3.3-3.3zM12 13.5V21";
const EYE = "M2.5 12S6 6 12 6s9.5 6 9.5 6-3.5 6-9.5 6-9.5-6-9.5-6zM12 14.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z";

export const ArchiveIcon = icon("M4 5h16v4H4zM5.5 9v10h13V9M10 13h4");
export const BackIcon = icon("M19 12H5M11 6l-6 6 6 6", { flips: true });
export const BranchIcon = icon(
  "M7 8v8M7 8a2.2 2.2 0 1 0 0-4.4A2.2 2.2 0 0 0 7 8zM7 20.4A2.2 2.2 0 1 0 7 16a2.2 2.2 0 0 0 0 4.4z" +
    "M17 8a2.2 2.2 0 1 0 0-4.4A2.2 2.2 0 0 0 17 8zM17 8c0 4-4 4.5-8.5 8.5",
);
export const CheckIcon = icon("M5 12.5l4.5 4.5L19 7.5");
export const ClockIcon = icon("M12 20.5a8.5 8.5 0 1 0 0-17 8.5 8.5 0 0 0 0 17zM12 7.5V12l3 2");
export const CloseIcon = icon("M6 6l12 12M18 6L6 18");
export const CopyIcon = icon("M9 9h11v11H9zM15 9V4H4v11h5");
export const DownIcon = icon("M6 9.5l6 6 6-6");
export const DownloadIcon = icon("M12 4v11M7 10.5l5 5 5-5M5 20h14");
export const EditIcon = icon("M4.5 19.5l1-4.5L16.5 4l3.5 3.5-11 11zM14 6.5l3.5 3.5");
export const ExternalIcon = icon("M18.5 13.5V20H4V5.5h6.5M14 4h6v6M20 4l-9 9", { flips: true });
export const FolderIcon = icon("M3.5 6h6l2 2.5h9V19h-17z");
export const EyeIcon = icon(EYE);
export const HideIcon = icon(`${EYE}M4 4l16 16`);
export const InfoIcon = icon("M12 20.5a8.5 8.5 0 1 0 0-17 8.5 8.5 0 0 0 0 17zM12 11v5M12 8v.1");
export const InstructionsIcon = icon("M6 3.5h8.5L18 7v13.5H6zM9 9.5h6M9 13h6M9 16.5h4");
export const KeyIcon = icon(
  "M8 19.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM11.2 11.8L20 3M16.5 6.5L20 10M13.5 9.5l2.5 2.5",
);
export const LinkIcon = icon(
  "M10 14a4 4 0 0 0 5.7 0l3.1-3.1a4 4 0 0 0-5.7-5.7L12 6.3M14 10a4 4 0 0 0-5.7 0l-3.1 3.1a4 4 0 0 0 5.7 5.7l1.1-1.1",
);
export const LeftIcon = icon("M14.5 6l-6 6 6 6", { flips: true });
export const MoonIcon = icon("M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z");
export const MoreIcon = icon(
  "M5 11.2a.8.8 0 1 0 0 1.6.8.8 0 0 0 0-1.6zM12 11.2a.8.8 0 1 0 0 1.6.8.8 0 0 0 0-1.6z" +
    "M19 11.2a.8.8 0 1 0 0 1.6.8.8 0 0 0 0-1.6z",
  { isFilled: true },
);
export const NewChatIcon = icon("M12 5H5v14h14v-7M10 14l.8-3L18 3.8l2.2 2.2-7.2 7.2z");
export const OfflineIcon = icon(
  "M4 4l16 16M5 12.5a10 10 0 0 1 4-2.3M13 9.8a10 10 0 0 1 6 2.7M8.5 16a5 5 0 0 1 5-1.2M12 19.5v.1" +
    "M2.5 9A14 14 0 0 1 6 6.8M10.5 5.6A14 14 0 0 1 21.5 9",
);
export const PinIcon = icon(PIN);
export const PinnedIcon = icon(PIN, { isFilled: true });
export const QueueIcon = icon("M4 6h16M4 11h10M4 16h6M17 13v7M13.5 16.5h7");
export const RetryIcon = icon("M19.5 12a7.5 7.5 0 1 1-2.3-5.4M19.5 3.5v4.3h-4.3");
export const RightIcon = icon("M9.5 6l6 6-6 6", { flips: true });
export const ScreenIcon = icon("M3.5 5h17v11h-17zM9 20h6M12 16v4");
export const SearchIcon = icon("M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.3 15.3L20 20");
export const SendIcon = icon("M12 19.5v-15M5.5 11L12 4.5l6.5 6.5");
export const SettingsIcon = icon(
  "M4 7h8M18 7h2M4 17h2M12 17h8M15 10a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM9 20a3 3 0 1 0 0-6 3 3 0 0 0 0 6z",
);
export const SidebarIcon = icon("M4 5h16v14H4zM9.5 5v14", { flips: true });
export const SignOutIcon = icon("M10 4.5H5v15h5M14.5 8l4 4-4 4M18.5 12H9.5", { flips: true });
export const StopIcon = icon("M7.5 7.5h9v9h-9z", { isFilled: true });
export const SunIcon = icon(
  "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 3v1.5M12 19.5V21M3 12h1.5M19.5 12H21M5.6 5.6l1.1 1.1" +
    "M17.3 17.3l1.1 1.1M5.6 18.4l1.1-1.1M17.3 6.7l1.1-1.1",
);
export const TabsIcon = icon("M8 8h12v12H8zM4 16V4h12");
export const SelectIcon = icon("M4.5 4.5h15v15h-15zM8 12.2l2.8 2.8L16 9.5");
export const TagIcon = icon("M4 4h8l8.5 8.5-8 8L4 12zM8.2 8v.1");
export const ThoughtIcon = icon(
  "M9.5 18h5M10.5 21h3M12 3.5a6 6 0 0 0-3.5 10.9c.7.5 1 1.1 1 1.9h5c0-.8.3-1.4 1-1.9A6 6 0 0 0 12 3.5z",
);
export const ToolIcon = icon(
  "" +
    "M14.5 6.5a4 4 0 0 1 5-2l-2.7 2.7 2 2 2.7-2.7a4 4 0 0 1-5.3 5L8.5 19.2a2 2 0 0 1-2.8-2.8" +
    "l7.7-7.7c-.2-.8 0-1.6 1.1-2.2z",
);
export const TrashIcon = icon("M4.5 7h15M9.5 7V4.5h5V7M6.5 7l1 13h9l1-13M10 11v5M14 11v5");
export const UnarchiveIcon = icon("M4 5h16v4H4zM5.5 9v10h13V9M12 17v-5M9.5 14l2.5-2.5 2.5 2.5");
export const UndoIcon = icon("M8 5L4 9l4 4M4 9h9.5a5.5 5.5 0 0 1 0 11H9", { flips: true });
export const UploadIcon = icon("M12 15.5v-11M7 9l5-5 5 5M5 20h14");
export const UserIcon = icon("M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 20.5a7.5 7.5 0 0 1 15 0");
export const WarningIcon = icon("M12 4l9 16H3zM12 10v4.5M12 17.2v.1");

/** The mark of the product: a message that is an entry in a ledger. The favicon is the same. */
export function Mark({ size = 24 }: { size?: number }) {
  return (
    <svg class="mark" viewBox="0 0 32 32" width={size} height={size} aria-hidden="true" focusable="false">
      <path class="mark-ground" d={MARK_GROUND} />
      <path class="mark-lines" d={MARK_LINES} />
    </svg>
  );
}
