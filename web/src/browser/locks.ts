/** Locks shared by tabs. Pages served over plain http have none, and a frame may be denied them. */

/** Like `navigator.locks.request`; without locks, run the work at once. */
export async function withLock(
  name: string,
  options: LockOptions,
  work: (lock: Lock | null) => Promise<void> | void,
): Promise<void> {
  if (!("locks" in navigator)) return work({ name, mode: "exclusive" });
  let hasBegun = false;
  try {
    await navigator.locks.request(name, options, (lock) => {
      hasBegun = true;
      return work(lock);
    });
  } catch (problem) {
    const isDenied = problem instanceof DOMException && problem.name === "SecurityError";
    if (hasBegun || !isDenied) throw problem;
    await work({ name, mode: "exclusive" });
  }
}
