import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { expectedNetworkData } from '../../ip-link.ts';
import { Bench, ipLinks } from '../bench.ts';
import { findForeignPlugin, layOutMultus } from '../foreign-cni.ts';
import { containerdSeries, locateTools } from '../tools.ts';

const claimFile = `/var/run/kubernetes.io/dra-device-attributes/resourceclaims/observed/vf/${testDriver}-metadata.json`;

type PublishedDevice = { name: string; attributes: Record<string, { string?: string }> };

describe.each(containerdSeries)('third-party CNI plugins on containerd %s', (version) => {
  it('attach: observe reports a VF that Multus attached, and lets Multus detach it', async (context) => {
    const multus = findForeignPlugin('multus', process.env);
    if ('missing' in multus) return context.skip(multus.missing);
    await using stack = new AsyncDisposableStack();
    const dir = mkdtempSync(join(tmpdir(), 'netdra-multus-'));
    stack.defer(() => rmSync(dir, { recursive: true, force: true }));
    const tools = locateTools();
    const ipam = { type: 'static', addresses: [{ address: '192.0.2.77/24' }] };
    const network = { cniVersion: '1.0.0', name: 'fast', type: 'host-device', device: 'nsim0v0', ipam };
    const cniBinDir = layOutMultus(dir, multus.path, tools.cniBinDir, network);
    const bench = await Bench.start({ version, logger: new RecordingLogger(), tools: { ...tools, cniBinDir } });
    stack.use(bench);
    await bench.startDriver();
    await expect.poll(() => bench.api.objects('ResourceSlice')).toHaveLength(1);
    const [slice] = bench.api.objects<{ spec: { devices: PublishedDevice[] } }>('ResourceSlice');
    const [device] = slice?.spec.devices ?? [];
    const pod = buildPod('observed', { resourceClaims: [{ name: 'nic', resourceClaimName: 'observed' }] });
    // A real VF is found again by its PCI address; a simulated one by its alias, which host-device overwrites.
    const macAddress = device?.attributes.mac?.string;
    const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', attach: 'observe', macAddress };
    const claim = buildClaim('observed', {
      requests: [{ name: 'vf', devices: [device?.name ?? ''] }],
      config: [{ source: 'FromClass', requests: [], parameters }],
      pods: [pod],
    });
    bench.api.create(claim);
    const sandbox = await bench.startPod(pod);
    const container = await bench.startContainer(sandbox, pod);
    const document = decodeStream((await container.exec('cat', claimFile)).stdout);
    const link = ipLinks(sandbox).find(({ ifname }) => ifname === 'net1');
    expect(document).toMatchObject({ generation: 1, devices: [{ networkData: expectedNetworkData(link) }] });
    expect(document.devices[0]?.networkData?.ips).toContain('192.0.2.77/24');
    await bench.endPod(pod);
    expect(bench.hostVfs()).toHaveLength(8);
  });
});
