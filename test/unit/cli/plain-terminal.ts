import type { Terminal } from '../../../src/cli/terminal.ts';

/** Without colours, as a file or pipe is. */
export const plainTerminal: Terminal = { write: () => undefined, style: (_, text) => text };
