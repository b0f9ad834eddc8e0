/** Wait for the next frame; a hidden tab has none. */
export function nextFrame(): Promise<void> {
  return new Promise((resolve) => {
    if (document.visibilityState === "hidden") setTimeout(resolve);
    else requestAnimationFrame(() => resolve());
  });
}
