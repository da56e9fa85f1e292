/** `npm run site:recording`: runs `npm run demo` in a terminal, and draws what it shows in docs/demo.svg. Needs root. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { repository } from '../../scripts/run-command.ts';
import { tempDir } from '../../test/doubles/temp-dir.ts';
import { drawRecording, type LineChange } from './draw-recording.ts';
import { TestTerminal } from './terminal.ts';

const size = { columns: 112, rows: 150 };
const command = 'npm run demo';

/** Each change of a line while the command runs. @throws Error if it does not end well in ten minutes */
async function record(): Promise<LineChange[]> {
  using dir = tempDir();
  using terminal = new TestTerminal(join(dir.path, 'socket'), size);
  const changes: LineChange[] = [];
  let shown: string[] = [];
  terminal.type(command, 'Enter');
  const startedAt = performance.now();
  for (;;) {
    const lines = terminal.lines();
    const seconds = (performance.now() - startedAt) / 1_000;
    changes.push(...lines.flatMap((text, row) => (text === (shown[row] ?? '') ? [] : [{ row, text, seconds }])));
    shown = lines;
    if (lines.some((line) => line.startsWith('done in '))) return changes;
    if (seconds > 600 || lines.some((line) => line.includes('failed'))) throw new Error(lines.join('\n').trimEnd());
    await setTimeout(100);
  }
}

const svg = drawRecording(await record());
writeFileSync(join(repository, 'docs/demo.svg'), svg);
console.log(`docs/demo.svg: ${svg.length} bytes`);
