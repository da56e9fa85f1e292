import { parseArgs } from 'node:util';

/** Options of the command. */
export const benchOptions = {
  only: { type: 'string' },
  smoke: { type: 'boolean', default: false },
  json: { type: 'string' },
  'write-docs': { type: 'boolean', default: false },
} as const;

/** The benches that `--only` names; `undefined`: all. @throws TypeError for options that there are not */
export function chosenNames(args: readonly string[]): string[] | undefined {
  return parseArgs({ args: [...args], options: benchOptions }).values.only?.split(',');
}
