/** As much of Node as tests and the driver use. (The library uses none of it.) */

declare module "node:test" {
  export function test(name: string, body: () => void | Promise<void>): void;
}

declare module "node:assert/strict" {
  const assert: {
    (value: unknown, message?: string): asserts value;
    equal<Value>(actual: unknown, expected: Value, message?: string): asserts actual is Value;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
    match(text: string, pattern: RegExp): void;
    rejects(
      made: Promise<unknown> | (() => Promise<unknown>),
      check?: object | ((problem: any) => boolean),
    ): Promise<void>;
    throws(made: () => unknown, check?: object | ((problem: any) => boolean)): void;
  };
  export default assert;
}

declare module "node:readline" {
  export function createInterface(options: { input: unknown }): AsyncIterable<string>;
}

declare module "node:fs" {
  export function mkdirSync(path: string, options: { recursive: true }): void;
  export function readdirSync(path: string): string[];
  export function readFileSync(path: string, encoding: "utf8"): string;
  export function rmSync(path: string): void;
  export function writeFileSync(path: string, text: string): void;
}

declare const process: {
  readonly argv: readonly string[];
  readonly pid: number;
  kill(pid: number, signal: string): void;
  readonly stdin: unknown;
  readonly stdout: { write(text: string): void };
  exitCode: number;
};
