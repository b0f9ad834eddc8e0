/** Save a whole chat as a file. */

import type { ExportFormat, Thread } from "../../thread/thread";
import { DownloadIcon, MoreIcon } from "../icons";
import { Menu } from "../menu";
import { strings } from "../../strings";

/** Characters of a file name, without its extension. */
const LONGEST_NAME = 60;

export function ExportMenu({ thread }: { thread: Thread }) {
  const isThere = thread.isKept && thread.id.value !== null && thread.turns.value.length > 0;
  if (!isThere) return null;
  const save = async (format: ExportFormat): Promise<void> => {
    const file = await thread.export(format);
    if (file) download(file, exportFileName(thread.info.peek()?.title ?? null, format === "markdown" ? "md" : "jsonl"));
  };
  return (
    <Menu
      label={strings.thread.chatOptions}
      entries={[
        {
          label: strings.thread.saveMarkdown,
          hint: strings.thread.saveMarkdownHint,
          icon: <DownloadIcon size={16} />,
          run: () => void save("markdown"),
        },
        {
          label: strings.thread.saveJsonLines,
          hint: strings.thread.saveJsonLinesHint,
          icon: <DownloadIcon size={16} />,
          run: () => void save("jsonl"),
        },
      ]}
    >
      <MoreIcon />
    </Menu>
  );
}

function download(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  // Later: the browser must have begun the download.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** A file name from the letters, digits, spaces and dashes of a title, valid on every system. */
export function exportFileName(title: string | null, ending: string): string {
  const bare = (title ?? "").normalize("NFC").replace(/[^\p{L}\p{M}\p{N}\- ]+/gu, " ");
  const letters = Array.from(bare.split(/\s+/).filter(Boolean).join(" "));
  const text = letters
    .slice(0, LONGEST_NAME)
    .join("")
    .replace(/^[- ]+|[- ]+$/g, "");
  const isReserved = /^(con|prn|aux|nul|com\d|lpt\d)$/i.test(text);
  return `${!text || isReserved ? strings.thread.fileName : text}.${ending}`;
}
