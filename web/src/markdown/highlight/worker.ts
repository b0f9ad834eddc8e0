/** The worker that highlights code. */

import { highlight } from "./highlight";

interface HighlightRequest {
  readonly number: number;
  readonly code: string;
  readonly language: string;
}

addEventListener("message", ({ data }: MessageEvent<HighlightRequest>) => {
  const { number, code, language } = data;
  let marks = null;
  try {
    marks = highlight(code, language);
  } catch {
    // A grammar that fails on some code leaves it without colours.
  }
  postMessage({ number, marks });
});
postMessage("ready");
