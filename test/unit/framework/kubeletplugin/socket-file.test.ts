import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { removeDeadSockets } from '../../../../src/framework/kubeletplugin/socket-file.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const isOurs = (name: string) => name.startsWith('dra-');

describe('removeDeadSockets', () => {
  it('ignores a missing directory', async () => {
    using dir = tempDir();
    expect(await removeDeadSockets(join(dir.path, 'none'), isOurs)).toEqual({ removed: [], problems: [] });
  });

  it('reports an unreadable directory with a remedy', async () => {
    using dir = tempDir();
    const path = join(dir.path, 'file');
    writeFileSync(path, '');
    const { removed, problems } = await removeDeadSockets(path, isOurs);
    expect(removed).toEqual([]);
    expect(problems).toMatchObject([{ code: 'socket-unavailable', path, hint: expect.any(String) }]);
  });

  it('keeps regular files, sockets of other programs, and sockets with a listener', async () => {
    using dir = tempDir();
    writeFileSync(join(dir.path, 'dra-file'), '');
    mkdirSync(join(dir.path, 'dra-directory'));
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(join(dir.path, 'dra-alive.sock'), resolve));
    try {
      expect(await removeDeadSockets(dir.path, isOurs)).toEqual({ removed: [], problems: [] });
      expect(readdirSync(dir.path)).toHaveLength(3);
    } finally {
      server.close();
    }
  });
});
