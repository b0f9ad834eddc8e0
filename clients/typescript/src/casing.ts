/** Names as the wire writes them, and as TypeScript does. Only those of the outermost object: what is within may be
 * somebody else's. */

type Fields = Record<string, unknown>;

/** `turn_count` becomes `turnCount`. */
export function camel<Shape>(fields: unknown): Shape {
  return renamed(fields as Fields, /_([a-z])/g, (_, letter) => letter.toUpperCase()) as Shape;
}

export function camels<Shape>(all: readonly unknown[]): Shape[] {
  return all.map(camel<Shape>);
}

/** `turnCount` becomes `turn_count`; what is undefined is left out when it is made JSON. */
export function snake(fields: object): Fields {
  return renamed(fields as Fields, /[A-Z]/g, (letter) => "_" + letter.toLowerCase());
}

function renamed(fields: Fields, pattern: RegExp, by: (...match: string[]) => string): Fields {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name.replace(pattern, by), value]));
}
