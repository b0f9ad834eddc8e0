/** Markdown, complete or still streaming. Its elements have texts of the page: another language needs another `key`. */

import { effect, type ReadonlySignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { MarkdownRenderer } from "../../markdown/renderer";
import "../../style/markdown.css";
import "../../style/maths.css";

interface MarkdownProps {
  /** A signal is subscribed to here, so that nothing around it renders again. */
  readonly text: string | ReadonlySignal<string>;
  /** Whether more text will arrive. */
  readonly isGrowing?: boolean;
}

export function MarkdownView({ text, isGrowing = false }: MarkdownProps) {
  const container = useRef<HTMLDivElement>(null);
  const shown = useRef<MarkdownRenderer | null>(null);
  useLayoutEffect(() => {
    shown.current ??= new MarkdownRenderer(container.current as HTMLElement);
    if (typeof text === "string") shown.current.show(text, isGrowing);
    else return effect(() => shown.current?.show(text.value, isGrowing));
    return undefined;
  }, [text, isGrowing]);
  useLayoutEffect(() => () => shown.current?.close(), []);
  return <div class="markdown" ref={container} />;
}
