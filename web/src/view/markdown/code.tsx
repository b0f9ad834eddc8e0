/** A code block by itself: the input or output of a tool. Another language of the page needs another `key`. */

import { useLayoutEffect, useRef } from "preact/hooks";
import { CodeBlock } from "../../markdown/code-block";
import "../../style/markdown.css";

interface CodeProps {
  readonly text: string;
  readonly language?: string;
}

export function CodeView({ text, language = "" }: CodeProps) {
  const container = useRef<HTMLDivElement>(null);
  const block = useRef<CodeBlock | null>(null);
  useLayoutEffect(() => {
    if (block.current?.language === language) {
      block.current.show(text, false);
    } else {
      block.current = new CodeBlock(text, language);
      container.current?.replaceChildren(block.current.element);
    }
  }, [text, language]);
  return <div class="markdown code-view" ref={container} />;
}
