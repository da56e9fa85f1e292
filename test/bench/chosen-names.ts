import { parseArgs } from 'node:util';
import { errnoCode, NetdraError } from '../../src/lib/errors.ts';

/** Options of the command. */
export const benchOptions = {
  only: { type: 'string' },
  smoke: { type: 'boolean', default: false },
  against: { type: 'string' },
  json: { type: 'string' },
  'write-docs': { type: 'boolean', default: false },
} as const;

/** The benches named by `--only`; `undefined`: all. @throws NetdraError `wrong-usage` */
export function chosenNames(args: readonly string[]): string[] | undefined {
  try {
    return parseArgs({ args: [...args], options: benchOptions }).values.only?.split(',');
  } catch (error) {
    if (!errnoCode(error)?.startsWith('ERR_PARSE_ARGS')) throw error;
    throw new NetdraError('wrong-usage', (error as Error).message, {
      hint: 'usage: npm run bench [-- --only NAME,NAME] [--against COMMIT] [--smoke] [--json FILE] [--write-docs]',
    });
  }
}
