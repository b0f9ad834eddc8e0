import { signal } from "@preact/signals";
import { render } from "preact";
import { expect, it } from "vitest";
import type { Session } from "../../src/session/session";
import { useDocumentTitle } from "../../src/view/document-title";
import { mounted } from "./mounted";

const { home, show } = mounted();

it("the title of a chat is gone with its page, before the next paint", () => {
  const thread = { id: signal(null), info: signal({ title: "A secret" }), pending: signal([]) };
  const session = { threads: { current: signal(thread) } } as unknown as Session;
  const Titled = () => {
    useDocumentTitle(session);
    return null;
  };
  show(<Titled />);
  expect(document.title).toBe("A secret · Turnledger");
  render(null, home);
  expect(document.title).toBe("Turnledger");
});
