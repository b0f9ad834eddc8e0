/** A channel between the tabs of one browser. */

/** Open a channel; null if the browser or the frame has none. */
export function openChannel(name: string): BroadcastChannel | null {
  try {
    return new BroadcastChannel(name);
  } catch {
    return null;
  }
}
