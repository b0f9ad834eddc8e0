/** Create an element with attributes and children, without HTML. */
export function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Readonly<Record<string, string>> = {},
  ...held: readonly (Node | string)[]
): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.append(...held);
  return made;
}

export function button(kind: string, words: string, pressed: (button: HTMLButtonElement) => void): HTMLButtonElement {
  const made = element("button", { type: "button", class: kind }, words);
  made.addEventListener("click", () => pressed(made));
  return made;
}
