/** Save a whole chat as a file. */

import type { ExportFormat, Thread } from "../../thread/thread";
import { strings } from "../../strings";

/** Characters of a file name, without its extension. */
const LONGEST_NAME = 60;

/** Read the chat, and have the browser save it. A failure is reported by the thread. */
export async function saveChat(thread: Thread, format: ExportFormat): Promise<void> {
  const file = await thread.export(format);
  if (file) download(file, exportFileName(thread.info.peek()?.title ?? null, format === "markdown" ? "md" : "jsonl"));
}

export function download(file: Blob, name: string): void {
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
