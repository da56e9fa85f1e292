import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RtnlConnection } from '../../src/node/netlink/index.ts';
import { TestNetns } from '../doubles/netns.ts';

describe('looking for a VF in a pod where thousands of links have its alias', () => {
  it('stops at a limit, and blocks the event loop for less than 50 ms', async () => {
    using stack = new DisposableStack();
    const netns = stack.use(new TestNetns('many'));
    const connection = stack.use(RtnlConnection.open(stack.use(netns.open())));
    const lines = Array.from({ length: 1_500 }, (_, n) => [`link add d${n} type ifb`, `link set d${n} alias vf-1`]);
    const batch = join(tmpdir(), `netdra-links-${process.pid}`);
    stack.defer(() => rmSync(batch, { force: true }));
    writeFileSync(batch, lines.flat().join('\n'));
    netns.exec('ip', '-batch', batch);
    const longest: number[] = [];
    for (let run = 0; run < 3; run++) {
      const table = await connection.linkTable({ listed: 1_000, decoded: 512 });
      const start = process.cpuUsage();
      expect(table.candidates([{ alias: 'vf-1' }])).toHaveLength(512);
      expect(table.isCut?.([{ alias: 'vf-1' }])).toBe(true);
      longest.push(process.cpuUsage(start).user / 1000);
    }
    expect(Math.min(...longest)).toBeLessThan(50);
    const whole = await connection.linkTable();
    expect([whole.all().length, whole.isCut?.([])]).toEqual([1_501, false]);
  });
});
