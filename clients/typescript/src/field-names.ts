/** Converts field names between the wire and TypeScript, of the outermost object only: nested ones may be user data. */

type Fields = Record<string, unknown>;

/** `turn_count` becomes `turnCount`. */
export function camelName(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

export function camel<Shape>(fields: unknown): Shape {
  return renamed(fields as Fields, camelName) as Shape;
}

export function camels<Shape>(all: readonly unknown[]): Shape[] {
  return all.map(camel<Shape>);
}

/** `turnCount` becomes `turn_count`; JSON leaves undefined fields out. */
export function snake(fields: object): Fields {
  return renamed(fields as Fields, (name) => name.replace(/[A-Z]/g, (letter) => "_" + letter.toLowerCase()));
}

function renamed(fields: Fields, by: (name: string) => string): Fields {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [by(name), value]));
}
