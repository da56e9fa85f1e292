/**
 * Fuzzes a target in this process, which an input may block or end: `node run-target.ts FILE SECONDS SEED LAST_INPUT`.
 * Each input is written to the file LAST_INPUT before it is run. Prints an {@link Outcome} as JSON.
 */
import { ftruncateSync, openSync, writeSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { checkInput, type FuzzTarget, inputsOf, samplesOf } from './target.ts';

export interface Outcome {
  inputs: number;
  /** The smallest failing input found, in base64, and the error. */
  failure?: { message: string; input: string };
}

async function fuzz(target: FuzzTarget, seconds: number, seed: number, lastInputPath: string): Promise<Outcome> {
  const file = openSync(lastInputPath, 'w');
  let inputs = 0;
  let running: Promise<unknown> | undefined;
  const property = fc.asyncProperty(inputsOf(target), async (input) => {
    inputs++;
    writeSync(file, input, 0, input.length, 0);
    ftruncateSync(file, input.length);
    running = checkInput(target, input);
    await running;
    // An unhandled rejection ends the process here, before the next input is written.
    await setImmediate();
  });
  const examples = samplesOf(target).map((input): [Uint8Array] => [input]);
  const options = { seed, examples, numRuns: 1_000_000_000, interruptAfterTimeLimit: seconds * 1000 };
  const { counterexample, errorInstance } = await fc.check(property, options);
  if (counterexample === null) {
    // The time limit can interrupt a pending run; a run that never ends ends this process, or has it killed.
    await running;
    return { inputs };
  }
  const message =
    errorInstance instanceof Error ? (errorInstance.stack ?? errorInstance.message) : String(errorInstance);
  return { inputs, failure: { message, input: Buffer.from(counterexample[0]).toString('base64') } };
}

const [file = '', seconds = '', seed = '', lastInputPath = ''] = process.argv.slice(2);
const { target } = (await import(file)) as { target: FuzzTarget };
process.stdout.write(JSON.stringify(await fuzz(target, Number(seconds), Number(seed), lastInputPath)));
// Closes whatever a target has left open.
process.exit();
