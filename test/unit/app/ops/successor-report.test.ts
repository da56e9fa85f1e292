import { execFileSync } from 'node:child_process';
import fs, { writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { SuccessorReport } from '../../../../src/app/ops/index.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

describe('SuccessorReport', () => {
  it('is written without waiting for the disk', async () => {
    using dir = tempDir();
    const report = new SuccessorReport(join(dir.path, 'successor.json'));
    using sync = vi.spyOn(fs, 'fsyncSync');
    report.write({ ready: true, report: 'ok' }, 'a');
    expect(await report.read('a')).toEqual({ ready: true, report: 'ok' });
    expect(sync).not.toHaveBeenCalled();
  });

  it('counts as missing if a power loss has left it incomplete', async () => {
    using dir = tempDir();
    const path = join(dir.path, 'successor.json');
    const report = new SuccessorReport(path);
    for (const text of ['', '\0\0']) {
      writeFileSync(path, text);
      expect(await report.read('a')).toBeUndefined();
    }
  });

  it('is read once for concurrent probes', async () => {
    using dir = tempDir();
    const path = join(dir.path, 'successor.json');
    execFileSync('mkfifo', [path]);
    const report = new SuccessorReport(path);
    const answers = Promise.all([report.read('a'), report.read('a')]);
    // A FIFO gives a text to one reader only.
    await writeFile(
      path,
      JSON.stringify({ atMs: Number(process.hrtime.bigint()) / 1e6 - 1, revision: 'a', ready: true, report: 'ok' }),
    );
    const answer = { ready: true, report: 'ok' };
    expect(await answers).toEqual([answer, answer]);
  });
});
