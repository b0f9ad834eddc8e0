/** Reduce HTML made from untrusted text to the allowed elements and attributes. */

import createPurify, { type Config } from "dompurify";

const TAGS = [
  ..."p h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong del br hr".split(" "),
  ..."table thead tbody tr th td a span".split(" "),
];
const TEXT_ATTRIBUTES = "title start align scope data-language data-picture data-alt data-task data-maths".split(" ");

const ALLOWED: Config & { RETURN_DOM_FRAGMENT: true } = {
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ["href", "data-piece", ...TEXT_ATTRIBUTES],
  // Decoration reads, checks and removes these before anything is shown.
  ADD_URI_SAFE_ATTR: TEXT_ATTRIBUTES,
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};

const purify = createPurify(window);

/** Sanitize HTML into an inert document, where nothing loads or runs. */
export function sanitizeHtml(html: string): DocumentFragment {
  return purify.sanitize(html, ALLOWED);
}

/** Sanitize several pieces of HTML in one document, which costs more than a short piece. */
export function sanitizePieces(pieces: readonly string[]): readonly DocumentFragment[] {
  if (pieces.length < 2) return pieces.map(sanitizeHtml);
  const whole = sanitizeHtml(pieces.map((piece) => `<span data-piece="">${piece}</span>`).join(""));
  const holders = [...whole.childNodes];
  // A piece that is not well-formed may end others.
  const isWhole = holders.every((node) => node instanceof Element && node.hasAttribute("data-piece"));
  if (!isWhole || holders.length !== pieces.length) return pieces.map(sanitizeHtml);
  return holders.map((holder) => {
    const fragment = whole.ownerDocument.createDocumentFragment();
    fragment.append(...holder.childNodes);
    return fragment;
  });
}
