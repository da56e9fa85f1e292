import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A directory for a test, removed with its content at the end of the scope. */
export function tempDir(): { path: string } & Disposable {
  const path = mkdtempSync(join(tmpdir(), 'netdra-'));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}
