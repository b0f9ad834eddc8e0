import { signal } from "@preact/signals";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { ConnectionState } from "../../src/feed/change-feed";
import { Notices } from "../../src/session/notices";
import type { Session } from "../../src/session/session";
import { ConnectionView } from "../../src/view/connection";
import { mounted } from "./mounted";

const { home, show } = mounted();
afterEach(() => vi.restoreAllMocks());

describe("a lost connection", () => {
  it("is shown and announced while it is lost", () => {
    const connection = signal<ConnectionState>("connecting");
    const notices = new Notices();
    const session = { feed: { connection }, notices } as unknown as Session;
    show(<ConnectionView session={session} />);
    const spoken = (): string | undefined => notices.announced.value.at(-1)?.text;
    expect([home.textContent, spoken()]).toEqual(["", undefined]);
    act(() => void (connection.value = "lost"));
    expect(home.textContent).toContain("No connection");
    expect(spoken()).toContain("No connection");
    act(() => void (connection.value = "live"));
    expect([home.textContent, spoken()]).toEqual(["", "Back online."]);
  });

  it("is shown while the device is offline", () => {
    const session = {
      feed: { connection: signal<ConnectionState>("live") },
      notices: new Notices(),
    } as unknown as Session;
    const online = vi.spyOn(navigator, "onLine", "get").mockReturnValue(false);
    show(<ConnectionView session={session} />);
    expect(home.textContent).toContain("No connection");
    online.mockReturnValue(true);
    act(() => void dispatchEvent(new Event("online")));
    expect(home.textContent).toBe("");
  });
});
