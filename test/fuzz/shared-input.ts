const headerInts = 4;
const capacityBytes = 4 * 1024 * 1024;
const slot = { execution: 0, running: 1, length: 2 } as const;

/**
 * Memory that the fuzzing thread and the one that watches it both see: what is being run just now. The input is still
 * there when the thread that ran it hangs or is dead.
 */
export class SharedInput {
  readonly memory: SharedArrayBuffer;
  readonly #ints: Int32Array;
  readonly #bytes: Uint8Array;

  constructor(memory = new SharedArrayBuffer(headerInts * 4 + capacityBytes)) {
    this.memory = memory;
    this.#ints = new Int32Array(memory, 0, headerInts);
    this.#bytes = new Uint8Array(memory, headerInts * 4);
  }

  begin(input: Uint8Array): void {
    this.#bytes.set(input);
    this.#ints[slot.length] = input.length;
    Atomics.add(this.#ints, slot.execution, 1);
    Atomics.store(this.#ints, slot.running, 1);
  }

  end(): void {
    Atomics.store(this.#ints, slot.running, 0);
  }

  /** The number of the execution under way; `undefined` between two of them. */
  get execution(): number | undefined {
    return Atomics.load(this.#ints, slot.running) === 1 ? Atomics.load(this.#ints, slot.execution) : undefined;
  }

  /** The input of the last execution. */
  get input(): Uint8Array {
    return this.#bytes.slice(0, this.#ints[slot.length]);
  }
}
