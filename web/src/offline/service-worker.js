// Answers with a page that says so when the server cannot be reached. It stores nothing: each answer comes from the
// server, and files, calls of the API and frames do not pass through here.

const PAGE = "%page%";
const POLICY = "%policy%";

addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(registration.navigationPreload?.enable()));
addEventListener("fetch", (event) => {
  const { method, mode, destination, url } = event.request;
  if (method !== "GET" || mode !== "navigate" || destination !== "document") return;
  const { origin, pathname } = new URL(url);
  const path = `${origin}${pathname}`;
  if (path === registration.scope || path === `${registration.scope}share`) event.respondWith(answer(event));
});

async function answer(event) {
  try {
    return (await event.preloadResponse) ?? (await fetch(event.request));
  } catch {
    const headers = {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": POLICY,
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
    };
    return new Response(PAGE, { status: 503, headers });
  }
}
