/** An image by itself: one that a user sent, or a tool made. */

import { useLayoutEffect, useRef } from "preact/hooks";
import { imageElement } from "../../markdown/images";
import "../../style/markdown.css";

interface Given {
  /** Of an image in the text itself (`data:`), which is shown, or elsewhere, which is shown to who asks for it. */
  readonly address: string;
  readonly alt?: string;
}

export function ImageView({ address, alt = "" }: Given) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => place.current?.replaceChildren(imageElement(address, alt)), [address, alt]);
  return <div class="markdown" ref={place} />;
}
