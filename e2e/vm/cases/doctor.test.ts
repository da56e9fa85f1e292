import { execFile } from 'node:child_process';
import { expect } from 'vitest';
import type { Finding } from '../../../src/cli/finding.ts';
import type { VmNode } from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** Results of `netdra doctor`. It runs beside the doubles, so nothing may block. */
async function doctor(driverPath: string, { bench }: VmNode) {
  const { settings, containerd } = bench;
  const flags = [
    `--kubelet-plugins-dir=${settings.kubeletPluginsDir}`,
    `--kubelet-registry-dir=${settings.kubeletRegistryDir}`,
    `--cdi-dir=${settings.cdiDir}`,
    `--nri-socket=${settings.nriSocket}`,
    `--cri-socket=${containerd.socketPath}`,
    `--kubeconfig=${settings.kubeconfig}`,
  ];
  const args = [driverPath, 'doctor', '-o', 'json', ...flags];
  const { code, stdout, stderr } = await new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
    execFile(process.execPath, args, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
    );
  });
  expect(stderr).toBe('');
  const findings: Finding[] = JSON.parse(stdout);
  return { code, findings, find: (check: string) => findings.find((finding) => finding.check === check) };
}

it('netdra doctor finds no problem on a machine with SR-IOV, and names cards, IOMMU groups and huge pages', async ({
  driverPath,
  node,
}) => {
  const { code, findings, find } = await doctor(driverPath, node);
  expect(findings.filter(({ level }) => level === 'problem')).toEqual([]);
  expect(code).toBe(0);
  const cards = findings.filter(({ check }) => check === 'SR-IOV').map(({ level, message }) => [level, message]);
  expect(cards).toEqual([
    ['ok', expect.stringMatching(/^pf0 \(0000:\S+:00\.0\), igb: 7 of \d+ VFs are on$/)],
    ['ok', expect.stringMatching(/^pf1 \(0000:\S+:00\.0\), igb: 7 of \d+ VFs are on$/)],
  ]);
  expect(find('IOMMU')).toMatchObject({
    level: 'ok',
    message: expect.stringMatching(/^on \(dmar\d.*\), \d+ groups$/),
  });
  expect(find('IOMMU groups')).toBeUndefined();
  expect(find('module vfio-pci')).toMatchObject({ level: 'ok' });
  expect(find('module igbvf')).toMatchObject({ level: 'ok' });
  expect(find('hugepages')).toMatchObject({ level: 'ok', message: expect.stringContaining('of 2 MiB') });
  // Version 2.1 keeps a record of every refused sandbox.
  expect(find('runtime')).toMatchObject({ level: 'warning', message: expect.stringContaining('containerd 2.1') });
  for (const check of ['NRI', 'CDI', 'API server', 'permissions', 'capabilities'])
    expect(find(check), check).toMatchObject({ level: 'ok' });
});
