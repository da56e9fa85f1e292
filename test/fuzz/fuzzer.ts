import type { CoverageMeter } from './coverage.ts';
import type { Finding } from './finding.ts';
import type { HeapGuard } from './heap-guard.ts';
import { minimize } from './minimize.ts';
import { type MutationSource, mutateBytes } from './mutate-bytes.ts';
import { mutateJson } from './mutate-json.ts';
import type { Random } from './random.ts';
import type { SharedInput } from './shared-input.ts';
import { substituteJson } from './substitute-json.ts';
import { type FuzzTarget, isDocumented } from './target.ts';
import { findPollution, outcomeOf, signatureOf, textOf } from './verdict.ts';

/** Without what the one who started it knows himself. */
export type NewFinding = Omit<Finding, 'target' | 'seed'>;

export interface FuzzerOptions {
  random: Random;
  coverage: CoverageMeter;
  heap: HeapGuard;
  shared: SharedInput;
  /** With so many different findings it ends: more tell nobody anything. Default 8. */
  maxFindings?: number;
  onFinding: (finding: NewFinding) => void;
  /** Called now and then. To tell the progress takes some time. */
  onBatch: (progress: () => FuzzProgress) => void;
}

export interface FuzzProgress {
  executions: number;
  /** How many of the inputs that it started from ended without an error. */
  acceptedSeeds: number;
  corpusSize: number;
  coveragePercent: number;
}

/**
 * Inputs between two questions for the coverage: few while there is much that is new, and then more, since each question
 * takes a millisecond or more. By count and not by time, so that a seed gives the same inputs again.
 */
const minBatchSize = 32;
const maxBatchSize = 4096;
const maxSlowBatchSize = 64;
/** Texts that quote their input without quotation marks would never end. */
const maxOutcomes = 300;

/** Runs changed inputs of one target and keeps those that reach new code, as starting points of further ones. */
export class Fuzzer {
  readonly #target: FuzzTarget;
  readonly #options: FuzzerOptions;
  readonly #source: MutationSource;
  readonly #corpus: Uint8Array[] = [];
  /** Those of the corpus that ended without an error: changes to the others seldom come further. */
  readonly #accepted: Uint8Array[] = [];
  /** Changes to the seeds that leave nothing out; for values only. */
  readonly #substitutions: Iterator<Uint8Array>[] = [];
  readonly #found = new Set<string>();
  /** Kinds of errors that came out, the announced ones too: their texts tell apart what code does not. */
  readonly #outcomes = new Set<string>();
  #executions = 0;
  #acceptedSeeds = 0;
  #batchSize = minBatchSize;
  /** What went wrong outside of the call: an unhandled rejection, an error in a callback. */
  #stray: unknown[] = [];

  constructor(target: FuzzTarget, options: FuzzerOptions) {
    this.#target = target;
    this.#options = options;
    const dictionary = (target.dictionary ?? []).map((word) => Buffer.from(word));
    const maxBytes = target.maxBytes ?? 8192;
    this.#source = { random: options.random, corpus: this.#corpus, dictionary, maxBytes };
  }

  get progress(): FuzzProgress {
    const { coverage } = this.#options;
    const { covers } = this.#target;
    return {
      executions: this.#executions,
      acceptedSeeds: this.#acceptedSeeds,
      corpusSize: this.#corpus.length,
      coveragePercent: coverage.percentOf(covers),
    };
  }

  /** @param endsAtMs in the time of `performance.now()` */
  async run(endsAtMs: number): Promise<void> {
    const { coverage, heap, maxFindings = 8 } = this.#options;
    coverage.remember(coverage.take());
    for (const seed of this.#target.seeds()) {
      const { isAccepted } = await this.#execute(seed);
      this.#keep(seed, isAccepted);
      if (isAccepted) this.#acceptedSeeds++;
      if (isAccepted && this.#target.shape === 'json') {
        this.#substitutions.push(substituteJson(seed, this.#options.random, this.#target.dictionary));
      }
    }
    if (this.#corpus.length === 0) throw new Error(`target ${this.#target.name} has no seeds`);
    coverage.remember(coverage.take());
    heap.begin();
    while (performance.now() < endsAtMs && this.#found.size < maxFindings) {
      const batch = await this.#runBatch(endsAtMs);
      const covered = coverage.take();
      this.#adaptBatch(coverage.isNew(covered));
      await this.#keepNew(batch, covered);
      const leak = await heap.check();
      if (leak !== undefined) this.#report({ kind: 'leak', message: leak, input: batch.at(-1)! }, 'leak');
      this.#options.onBatch(() => this.progress);
    }
  }

  /** Runs just this input. */
  async replay(input: Uint8Array): Promise<void> {
    this.#executions++;
    const { unexpected } = await this.#attempt(input);
    if (unexpected !== undefined) this.#report({ kind: 'crash', message: textOf(unexpected), input }, 'replay');
  }

  /** For what is thrown outside of any call: it is the fault of the input that runs, or ran last. */
  reportStray(error: unknown): void {
    this.#stray.push(error);
  }

  async #runBatch(endsAtMs: number): Promise<Uint8Array[]> {
    const batch: Uint8Array[] = [];
    while (batch.length < this.#batchSize && performance.now() < endsAtMs) {
      const input = this.#mutate();
      batch.push(input);
      const { isNewOutcome } = await this.#execute(input);
      if (isNewOutcome) this.#keep(input, false);
    }
    return batch;
  }

  #adaptBatch(hasNew: boolean): void {
    const maxSize = this.#target.isSlow ? maxSlowBatchSize : maxBatchSize;
    this.#batchSize = hasNew ? Math.max(minBatchSize, this.#batchSize / 2) : Math.min(maxSize, this.#batchSize * 2);
  }

  #mutate(): Uint8Array {
    const { random, maxBytes } = this.#source;
    const substituted = random.oneIn(3) ? this.#substitute() : undefined;
    if (substituted !== undefined && substituted.length <= maxBytes) return substituted;
    const from = this.#accepted.length > 0 && random.oneIn(2) ? this.#accepted : this.#corpus;
    // What was found last has been tried least.
    const parent = random.pick(random.oneIn(2) ? from.slice(-16) : from);
    if (this.#target.shape === 'json' && !random.oneIn(4)) {
      const changed = mutateJson(parent, random, this.#target.dictionary);
      if (changed !== undefined && changed.length <= maxBytes) return changed;
    }
    return mutateBytes(parent, this.#source);
  }

  #substitute(): Uint8Array | undefined {
    while (this.#substitutions.length > 0) {
      const index = this.#source.random.below(this.#substitutions.length);
      const { value, done } = this.#substitutions[index]!.next();
      if (!done) return value;
      this.#substitutions.splice(index, 1);
    }
    return undefined;
  }

  #keep(input: Uint8Array, isAccepted: boolean): void {
    this.#corpus.push(input);
    if (isAccepted) this.#accepted.push(input);
  }

  /** Finds the inputs of a batch that reached new code, by halves. */
  async #keepNew(inputs: Uint8Array[], covered: ReturnType<CoverageMeter['take']>): Promise<void> {
    const { coverage } = this.#options;
    if (!coverage.isNew(covered)) return;
    if (inputs.length === 1) {
      this.#keep(inputs[0]!, (await this.#execute(inputs[0]!)).isAccepted);
      coverage.remember(covered);
      return;
    }
    const middle = inputs.length >> 1;
    for (const half of [inputs.slice(0, middle), inputs.slice(middle)]) {
      for (const input of half) await this.#execute(input);
      await this.#keepNew(half, coverage.take());
    }
    // Code that runs only the first time, or only sometimes: nobody's merit, and not new next time.
    coverage.remember(covered);
  }

  /** @returns whether it ended without an error, and if not whether no input has ended so before */
  async #execute(input: Uint8Array): Promise<{ isAccepted: boolean; isNewOutcome: boolean }> {
    this.#executions++;
    const { unexpected, outcome } = await this.#attempt(input);
    if (unexpected !== undefined) await this.#reportCrash(input, unexpected);
    const isAccepted = unexpected === undefined && outcome === undefined;
    const isNewOutcome = outcome !== undefined && !this.#outcomes.has(outcome) && this.#outcomes.size < maxOutcomes;
    if (isNewOutcome) this.#outcomes.add(outcome);
    return { isAccepted, isNewOutcome };
  }

  async #attempt(input: Uint8Array): Promise<{ unexpected?: unknown; outcome?: string }> {
    const { shared } = this.#options;
    let thrown: unknown;
    shared.begin(input);
    try {
      // A copy: what changes its input must not change the corpus.
      const work = this.#target.run(Uint8Array.from(input));
      if (work !== undefined) {
        await work;
        await new Promise((resolve) => setImmediate(resolve));
      }
    } catch (error) {
      thrown = error ?? new Error(`thrown: ${error}`);
    }
    shared.end();
    const [stray] = this.#stray.splice(0);
    if (stray !== undefined) return { unexpected: stray };
    const polluted = findPollution();
    if (polluted !== undefined) return { unexpected: polluted };
    if (thrown === undefined) return {};
    if (!isDocumented(thrown, this.#target.errors)) return { unexpected: thrown };
    return { outcome: outcomeOf(thrown) };
  }

  async #reportCrash(input: Uint8Array, error: unknown): Promise<void> {
    const signature = signatureOf(error);
    if (this.#found.has(signature)) return;
    // Before the search for a shorter input, which must not report again.
    this.#found.add(signature);
    const shorter = await minimize(input, async (candidate) => {
      const { unexpected } = await this.#attempt(candidate);
      return unexpected !== undefined && signatureOf(unexpected) === signature;
    });
    this.#report({ kind: 'crash', message: textOf(error), input: shorter }, signature);
  }

  #report(finding: NewFinding, signature: string): void {
    this.#found.add(signature);
    this.#options.onFinding(finding);
  }
}
