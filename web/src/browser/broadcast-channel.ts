/** A channel between the tabs of one browser. */

/** The channel of a name; null: there are none, or not for this frame. */
export function openChannel(name: string): BroadcastChannel | null {
  try {
    return new BroadcastChannel(name);
  } catch {
    return null;
  }
}
