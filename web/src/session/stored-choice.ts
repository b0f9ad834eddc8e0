/** A choice of the user between some values, stored in the storage scope and the same in all tabs. */

import { signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { StorageScope } from "./storage-scope";

export class StoredChoice<Value extends string> {
  readonly values: readonly [Value, ...Value[]];
  readonly #storage: StorageScope;
  readonly #name: string;
  readonly #value: Signal<Value>;
  readonly #unwatch: () => void;

  /** `values`: the first is the default. `fixed`: holds in this tab until the user chooses here, whatever is stored. */
  constructor(
    storage: StorageScope,
    name: string,
    values: readonly [Value, ...Value[]],
    fixed: Value | null = null,
  ) {
    this.values = values;
    this.#storage = storage;
    this.#name = name;
    this.#value = signal(fixed ?? this.#stored());
    this.#unwatch = fixed !== null ? () => {} : storage.watch(name, () => (this.#value.value = this.#stored()));
  }

  get value(): Value {
    return this.#value.value;
  }

  get signal(): ReadonlySignal<Value> {
    return this.#value;
  }

  choose(value: Value): void {
    this.#value.value = value;
    this.#storage.set(this.#name, value === this.values[0] ? null : value);
  }

  /** Ignore other tabs. */
  close(): void {
    this.#unwatch();
  }

  #stored(): Value {
    const stored = this.#storage.get(this.#name);
    return this.values.find((each) => each === stored) ?? this.values[0];
  }
}
