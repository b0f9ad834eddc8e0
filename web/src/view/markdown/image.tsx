/** An image by itself: one that a user sent, or a tool made. */

import { useLayoutEffect, useRef } from "preact/hooks";
import { imageElement } from "../../markdown/images";
import "../../style/markdown.css";

interface ImageProps {
  /** An embedded image (`data:`) is shown; a remote one loads on request. */
  readonly address: string;
  readonly alt?: string;
}

export function ImageView({ address, alt = "" }: ImageProps) {
  const container = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => container.current?.replaceChildren(imageElement(address, alt)), [address, alt]);
  return <div class="markdown" ref={container} />;
}
