/** Locks that tabs share, where there are any: pages that came by plain http have none, and a frame may be denied them. */

/** Do it while no other tab does something under this name; where there are no locks, do it at once. */
export async function locked(name: string, work: () => Promise<void>, signal?: AbortSignal): Promise<void> {
  if (!("locks" in navigator)) return work();
  let hasBegun = false;
  const held = (): Promise<void> => {
    hasBegun = true;
    return work();
  };
  try {
    await navigator.locks.request(name, signal ? { signal } : {}, held);
  } catch (problem) {
    const isDenied = problem instanceof DOMException && problem.name === "SecurityError";
    if (hasBegun || !isDenied) throw problem;
    await work();
  }
}
