
"use strict";
// The framing page gave the address, and learns only the size of the image.
const postSize = size => parent.postMessage({turnledgerPicture: size}, "*");

function addressed() {
  try {
    const url = new URL(decodeURIComponent(location.hash.slice(1)));
    return ["http:", "https:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function show(url) {
  const image = new Image();
  image.alt = "";
  image.referrerPolicy = "no-referrer";
  image.onload = () => postSize({width: image.naturalWidth, height: image.naturalHeight});
  image.onerror = () => postSize(null);
  image.src = url;
  document.body.append(image);
}

// In a window of its own, any image could appear under the address of this server.
if (parent !== window) {
  const url = addressed();
  if (url === null) postSize(null);
  else show(url);
}
