import type { Terminal } from '../../../../src/app/tools/terminal.ts';

/** Without colours, as a file or pipe is. */
export const plainTerminal: Terminal = { write: () => undefined, style: (_, text) => text };
