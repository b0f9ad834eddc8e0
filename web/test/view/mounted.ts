import { render, type ComponentChild } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach } from "vitest";

export interface Mounted {
  readonly home: HTMLElement;
  show(view: ComponentChild): void;
}

/** A place in the page to show views in, empty for each test of a file. */
export function mounted(): Mounted {
  const home = document.createElement("div");
  const show = (view: ComponentChild): void => void act(() => render(view, home));
  beforeEach(() => document.body.append(home));
  afterEach(() => {
    show(null);
    home.remove();
  });
  return { home, show };
}
