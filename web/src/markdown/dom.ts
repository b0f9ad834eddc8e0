/** Create an element with attributes and children, without HTML. */
export function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Readonly<Record<string, string>> = {},
  ...children: readonly (Node | string)[]
): HTMLElementTagNameMap[Name] {
  const created = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) created.setAttribute(attribute, value);
  created.append(...children);
  return created;
}

export function button(kind: string, label: string, onClick: (button: HTMLButtonElement) => void): HTMLButtonElement {
  const created = element("button", { type: "button", class: kind }, label);
  created.addEventListener("click", () => onClick(created));
  return created;
}
