import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { Bench, ipLinks } from '../bench.ts';
import { containerdSeries } from '../tools.ts';
import { addVfPod, expectClean, expectTruth } from '../vf-pod.ts';

/** Only the network namespace with its loopback interface, as KEP-6313 intends for pods without a default network. */
const loopbackOnly = { cniVersion: '1.0.0', name: 'none', plugins: [{ type: 'loopback' }] };

describe.each(containerdSeries)('a pod without a default network on containerd %s', (version) => {
  it('has its VF, with addresses and the default route, and finds it in its file', async () => {
    await using bench = await Bench.start({ version, logger: new RecordingLogger() });
    await using _driver = await bench.startProcess({ cniBinDirs: [bench.containerd.cniBinDir] });
    writeFileSync(join(bench.containerd.cniConfDir, '10-netdra.conflist'), JSON.stringify(loopbackOnly));
    const routes = [{ destination: '0.0.0.0/0', gateway: '192.0.2.254' }];
    const fixed = await addVfPod(bench, 'fixed', 0, { routes });
    const subnet = '198.51.100.0/24';
    const ipam = { type: 'host-local', subnet, routes: [{ dst: '0.0.0.0/0', gw: '198.51.100.1' }] };
    const assigned = await addVfPod(bench, 'assigned', 1, { ipam, addresses: undefined });
    for (const [pod, gateway] of [
      [fixed, '192.0.2.254'],
      [assigned, '198.51.100.1'],
    ] as const) {
      const sandbox = await bench.startPod(pod);
      expect(await expectTruth(bench, sandbox, pod)).toBe(1);
      expect(ipLinks(sandbox).map(({ ifname }) => ifname)).toEqual(['lo', 'net1']);
      const container = await bench.startContainer(sandbox, pod);
      expect((await container.exec('ip', 'route')).stdout).toContain(`default via ${gateway} dev net1`);
    }
    await bench.endAllPods();
    await expectClean(bench);
  });
});
