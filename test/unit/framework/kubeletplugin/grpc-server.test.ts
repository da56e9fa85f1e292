import { once } from 'node:events';
import { readdirSync, statSync, watch } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { GrpcServer } from '../../../../src/framework/kubeletplugin/grpc-server.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

describe('GrpcServer', () => {
  it('creates its socket file only when it accepts connections, because the kubelet connects at once', async () => {
    using dir = tempDir();
    const seen: (string | null)[] = [];
    const watcher = watch(dir.path, (_event, name) => seen.push(name));
    using stack = new DisposableStack();
    stack.defer(() => watcher.close());
    stack.use(await GrpcServer.start(join(dir.path, 'a.sock'), []));
    await vi.waitFor(() => expect(seen).toContain('a.sock'));
    const before = seen.slice(0, seen.indexOf('a.sock'));
    expect(before.length).toBeGreaterThan(0);
    for (const name of before) expect(name).toMatch(/^\.[0-9a-f]{6}$/);
    expect(readdirSync(dir.path)).toEqual(['a.sock']);
    expect(statSync(join(dir.path, 'a.sock')).mode & 0o777).toBe(0o600);
  });

  it('removes its socket file as soon as it stops accepting calls, but keeps the socket of a successor', async () => {
    using dir = tempDir();
    const path = join(dir.path, 'a.sock');
    using first = await GrpcServer.start(path, []);
    const drained = first.drain(systemClock, 5_000);
    expect(readdirSync(dir.path)).toEqual([]);
    using _ = await GrpcServer.start(path, []);
    expect(await drained).toBe(true);
    first[Symbol.dispose]();
    const socket = connect(path);
    await once(socket, 'connect');
    socket.destroy();
  });
});
