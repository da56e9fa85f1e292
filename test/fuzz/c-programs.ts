import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { CheckedPrograms } from '../../programs/build.ts';
import { ToolchainError } from '../../programs/toolchain.ts';
import { checkedTool } from '../integration/programs/checked-tool.ts';
import { allLayouts, ContainerRoot, runProgram, vf } from '../integration/programs/container-root.ts';
import type { Report } from './report.ts';
import { corpusFiles } from './target.ts';

export const cProgramsName = 'c-programs';

const roundsPerRun = 1000;

/** For a run on a busy machine: 1,000 rounds take a quarter of a second on an idle one. */
const timeoutMs = 120_000;

/** Number of accepted and rejected inputs. */
export interface ProgramCounts {
  documents: number;
  refused: number;
  states: number;
  gates: number;
}

/**
 * Runs `programs/fuzz/fuzz.c`: the parsers of `netdra-metadata` and `netdra-gate` with sanitizers, on mutated metadata
 * files of the driver and the files of the corpus.
 * @throws ToolchainError, CommandError of the build
 */
export async function fuzzPrograms(
  { fuzz }: CheckedPrograms,
  rounds: number,
  seed: number,
): Promise<{ counts: ProgramCounts; failure?: string }> {
  using root = new ContainerRoot();
  await root.prepare({ claim: 'a-nic-x7k2p', podClaimName: 'nic', devices: [vf(1), vf(2)], layouts: allLayouts });
  const files = [
    ...root.files().map((path) => join(root.path, path)),
    ...corpusFiles(cProgramsName).map((url) => fileURLToPath(url)),
  ];
  const args = [String(rounds), String(seed), ...files];
  const { exitCode, stdout, stderr } = runProgram(fuzz, args, process.env, timeoutMs);
  const [documents = 0, refused = 0, states = 0, gates = 0] = stdout.split(' ').map(Number);
  const counts = { documents, refused, states, gates };
  return exitCode === 0 && stderr === '' ? { counts } : { counts, failure: `exit code ${exitCode}: ${stderr}` };
}

/** The same as a part of a run of all targets. */
export async function reportPrograms(seconds: number, firstSeed: number): Promise<Report> {
  const end = performance.now() + 1000 * seconds;
  let inputs = 0;
  try {
    const programs = checkedTool();
    for (let seed = firstSeed; performance.now() < end; seed++) {
      const { counts, failure } = await fuzzPrograms(programs, roundsPerRun, seed);
      inputs += counts.documents + counts.refused;
      if (failure !== undefined) return { inputs, findings: [{ message: `seed ${seed}, ${failure}` }] };
    }
    return { inputs, findings: [] };
  } catch (error) {
    if (!(error instanceof ToolchainError)) throw error;
    return { inputs: undefined, findings: [], leftOut: error.message };
  }
}
