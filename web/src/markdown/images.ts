/** Images: embedded ones are shown, remote ones load on request. Loading a remote image reveals to its server that this
 * is read, when, and from where. So it takes a click, and happens in a frame from our own server that may load images
 * and nothing else: the page itself never loads anything remote. */

import { button, element } from "./dom";
import { safeText } from "./safe-text";
import { strings } from "../strings";

const EMBEDDED = /^data:image\/(?:png|jpeg|jpg|gif|webp|avif|bmp);base64,[A-Za-z0-9+/\s]+={0,2}$/;
/** In characters, for an image of three quarters of that in bytes. */
const MAX_EMBEDDED = 8_000_000;
const MAX_ALT = 300;

/** The element for an image at an untrusted address. */
export function imageElement(address: string, alt: string): HTMLElement {
  const description = safeText(alt).slice(0, MAX_ALT);
  if (address.length <= MAX_EMBEDDED && EMBEDDED.test(address)) return embeddedImage(address, description);
  const url = remoteUrl(address);
  return url === null ? placeholder(description, strings.markdown.brokenImage) : loadOnRequest(url, description);
}

/** A placeholder for an image that is still streaming in. */
export function pendingImageElement(alt: string): HTMLElement {
  return placeholder(safeText(alt).slice(0, MAX_ALT), strings.markdown.pendingImage);
}

function embeddedImage(address: string, alt: string): HTMLElement {
  const image = element("img", { class: "picture", src: address, alt, decoding: "async" });
  const fail = (): void => image.replaceWith(placeholder(alt, strings.markdown.brokenImage));
  image.addEventListener("error", fail, { once: true });
  return image;
}

function placeholder(alt: string, label: string): HTMLElement {
  const text = alt === "" ? label : strings.markdown.described(label, alt);
  return element("span", { class: "picture-missing", dir: "auto" }, text);
}

function loadOnRequest(url: URL, alt: string): HTMLElement {
  const container = element("span", { class: "picture-holder" });
  const loadButton = button("picture-load", strings.markdown.loadImageFrom(url.host), () =>
    container.replaceChildren(imageFrame(url, alt, container)),
  );
  // The server receives the whole URL, not only the shown host.
  loadButton.title = url.href.slice(0, MAX_ALT);
  container.append(loadButton);
  if (alt !== "") container.append(element("span", { class: "picture-alt", dir: "auto" }, alt));
  return container;
}

function imageFrame(url: URL, alt: string, container: HTMLElement): HTMLElement {
  const frame = element("iframe", {
    class: "picture-frame",
    sandbox: "allow-scripts",
    referrerpolicy: "no-referrer",
    title: alt === "" ? strings.markdown.imageFrom(url.host) : alt,
    src: `picture#${encodeURIComponent(url.href)}`,
  });
  const receive = (event: MessageEvent): void => {
    if (!frame.isConnected) return removeEventListener("message", receive);
    if (event.source !== frame.contentWindow) return;
    const size = sizeOf(event.data);
    if (size === undefined) return;
    removeEventListener("message", receive);
    if (size === null) container.replaceChildren(placeholder(alt, strings.markdown.noImageFrom(url.host)));
    else fit(frame, size);
  };
  addEventListener("message", receive);
  return frame;
}

interface Size {
  readonly width: number;
  readonly height: number;
}

/** The size that a frame reports; null: no image; undefined: another message. */
function sizeOf(message: unknown): Size | null | undefined {
  if (typeof message !== "object" || message === null || !("turnledgerPicture" in message)) return undefined;
  const size = message.turnledgerPicture as Partial<Size> | null;
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

function remoteUrl(address: string): URL | null {
  try {
    const url = new URL(address);
    return (url.protocol === "https:" || url.protocol === "http:") && url.hostname !== "" ? url : null;
  } catch {
    return null;
  }
}
