/** Images: embedded ones are shown, remote ones load on request. Loading a remote image reveals to its server that this
 * is read, when, and from where. So it takes a click, and happens in a frame from our own server that may load images
 * and nothing else: the page itself never loads anything remote. */

import { button, element } from "./dom";
import { safeText } from "./safe-text";

const SHOWN_AT_ONCE = /^data:image\/(?:png|jpeg|jpg|gif|webp|avif|bmp);base64,[A-Za-z0-9+/\s]+={0,2}$/;
/** In characters, for an image of three quarters of that in bytes. */
const LARGEST = 8_000_000;
const MOST_WORDS = 300;

/** The element for an image at an untrusted address. */
export function imageElement(address: string, alt: string): HTMLElement {
  const words = safeText(alt).slice(0, MOST_WORDS);
  if (address.length <= LARGEST && SHOWN_AT_ONCE.test(address)) return inText(address, words);
  const url = remote(address);
  return url === null ? missing(words, "Image that cannot be shown") : asking(url, words);
}

/** A placeholder for an image that is still streaming in. */
export function pendingImageElement(alt: string): HTMLElement {
  return missing(safeText(alt).slice(0, MOST_WORDS), "Image on its way");
}

function inText(address: string, alt: string): HTMLElement {
  const image = element("img", { class: "picture", src: address, alt, decoding: "async" });
  image.addEventListener("error", () => image.replaceWith(missing(alt, "Image that cannot be shown")), { once: true });
  return image;
}

function missing(alt: string, why: string): HTMLElement {
  return element("span", { class: "picture-missing", dir: "auto" }, alt === "" ? why : `${why}: ${alt}`);
}

function asking(url: URL, alt: string): HTMLElement {
  const place = element("span", { class: "picture-place" });
  const ask = button("picture-ask", `Load image from ${url.host}`, () =>
    place.replaceChildren(framed(url, alt, place)),
  );
  // The whole URL goes to its server, including what is hidden behind the host name.
  ask.title = url.href.slice(0, MOST_WORDS);
  place.append(ask);
  if (alt !== "") place.append(element("span", { class: "picture-alt", dir: "auto" }, alt));
  return place;
}

function framed(url: URL, alt: string, place: HTMLElement): HTMLElement {
  const frame = element("iframe", {
    class: "picture-frame",
    sandbox: "allow-scripts",
    referrerpolicy: "no-referrer",
    title: alt === "" ? `Image from ${url.host}` : alt,
    src: `picture#${encodeURIComponent(url.href)}`,
  });
  const heard = (event: MessageEvent): void => {
    if (!frame.isConnected) return removeEventListener("message", heard);
    if (event.source !== frame.contentWindow) return;
    const size = sizeOf(event.data);
    if (size === undefined) return;
    removeEventListener("message", heard);
    if (size === null) place.replaceChildren(missing(alt, `No image came from ${url.host}`));
    else fit(frame, size);
  };
  addEventListener("message", heard);
  return frame;
}

interface Size {
  readonly width: number;
  readonly height: number;
}

/** The size that a frame reports; null: no image; undefined: another message. */
function sizeOf(said: unknown): Size | null | undefined {
  if (typeof said !== "object" || said === null || !("turnledgerPicture" in said)) return undefined;
  const size = said.turnledgerPicture as Partial<Size> | null;
  if (typeof size !== "object" || size === null) return null;
  const { width, height } = size;
  return isLength(width) && isLength(height) ? { width, height } : null;
}

function isLength(value: unknown): value is number {
  return typeof value === "number" && value > 0 && value < 100_000;
}

function fit(frame: HTMLIFrameElement, { width, height }: Size): void {
  frame.style.setProperty("--width", `${width}px`);
  frame.style.setProperty("--ratio", `${width} / ${height}`);
  frame.dataset["fits"] = "";
}

function remote(address: string): URL | null {
  try {
    const url = new URL(address);
    return (url.protocol === "https:" || url.protocol === "http:") && url.hostname !== "" ? url : null;
  } catch {
    return null;
  }
}
