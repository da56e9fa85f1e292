import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { AddressWatch } from '../../../e2e/kind/cases/address-watch.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

/** A container engine whose node has one network namespace. The node is killed at first while it prints a line. */
const engine = `#!/bin/bash
nsenter() { echo '[{"addr_info":[{"local":"10.0.0.1","scope":"global"}]}]'; }
export -f nsenter
mkdir "$0.netns" && mkdir "$0.netns/ns1" && isFirst=yes
bash -c "\${5//\\/run\\/netns/$0.netns}" | { read -r line; [ "$isFirst" ] && printf %s "\${line::-12}" || echo "$line"; }
`;

it('ignores a line that the node did not finish when it was killed', async () => {
  using dir = tempDir();
  const path = join(dir.path, 'engine');
  writeFileSync(path, engine, { mode: 0o755 });
  await using watch = new AddressWatch(path, ['node']);
  await expect.poll(() => watch.holdersOf('10.0.0.1'), { timeout: 10_000 }).toBe(1);
});

it('reports a container engine that cannot be started', async () => {
  const watch = new AddressWatch('/nowhere/engine', ['node']);
  await expect(watch[Symbol.asyncDispose]()).rejects.toThrow('ENOENT');
});
