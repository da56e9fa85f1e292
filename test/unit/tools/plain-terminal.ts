import type { Terminal } from '../../../src/tools/terminal.ts';

/** Without colours, as a file or pipe is. */
export const plainTerminal: Terminal = { write: () => undefined, style: (_, text) => text };
