import { run } from '../../../scripts/packages/run.ts';

/**
 * Makes a file that holds an ext4 file system with what a folder holds.
 * @param freeKib room for what is written later, default none: it is only to be read
 */
export function writeExt4Image(path: string, folder: string, freeKib = 0): void {
  const [usedKib = '0'] = run('du', ['-sk', folder]).split('\t');
  const [entries = '0'] = run('du', ['--inodes', '-s', folder]).split('\t');
  // Room for what the file system itself needs: a block for each file at most, and its tables.
  const sizeKib = Math.ceil(Number(usedKib) * 1.05) + 4 * Number(entries) + 16_384 + freeKib;
  const inodes = String(Number(entries) + 1_024 + Math.ceil(freeKib / 16));
  run('mke2fs', ['-q', '-t', 'ext4', '-O', '^has_journal', '-m', '0', '-N', inodes, '-d', folder, path, `${sizeKib}k`]);
}
