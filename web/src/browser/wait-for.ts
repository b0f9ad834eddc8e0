/** Wait for a condition on signals. */

import { effect } from "@preact/signals";

export async function waitFor(condition: () => boolean): Promise<void> {
  await new Promise<void>((resolve) => {
    let isDone = false;
    const release = effect(() => {
      if (isDone || !condition()) return;
      isDone = true;
      queueMicrotask(() => (release(), resolve()));
    });
  });
}
