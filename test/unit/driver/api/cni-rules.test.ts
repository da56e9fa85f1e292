import { expect, it } from 'vitest';
import { allCni, type CniRules } from '../../../../src/driver/api/cni-rules.ts';
import type { NetworkAttachmentReader } from '../../../../src/driver/claims/index.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { allocated, DriverBench, fromClass } from '../claims/driver-bench.ts';

const chain = (...types: string[]) => ({ cniVersion: '1.0.0', name: 'net', plugins: types.map((type) => ({ type })) });
const definition = { name: 'fast', namespace: 'networks' };
const definitions: NetworkAttachmentReader = {
  readNetworkAttachment: async () => ({ spec: { config: JSON.stringify(chain('sriov', 'evil')) } }),
};

async function outcome(fields: object, rules: Partial<CniRules>): Promise<string> {
  using bench = new DriverBench(definitions, { ...allCni, ...rules });
  const result = await bench.prepare(allocated('c', ['dev-1'], { config: [fromClass(fields)] }));
  return result !== undefined && 'error' in result ? explain(result.error) : 'prepared';
}

it.each<[object, Partial<CniRules>, string]>([
  [{ attach: 'cni', cni: chain('sriov') }, { uses: ['ipam'] }, 'claim default/c: attach: cni is switched off'],
  [{ ipam: { type: 'static' } }, { uses: ['attach'] }, 'claim default/c: ipam is switched off'],
  [{ ipam: { type: 'static' } }, { uses: ['ipam'], allowedPlugins: ['static'] }, 'prepared'],
  [{ ipam: { type: 'evil' } }, { allowedPlugins: ['static'] }, 'the CNI plugin evil is not allowed'],
  [{ attach: 'cni', cni: chain('sriov', 'tuning') }, { allowedPlugins: ['sriov', 'tuning'] }, 'prepared'],
  [{ attach: 'cni', cni: chain('sriov', 'evil') }, { allowedPlugins: ['sriov'] }, 'the CNI plugin evil is not allowed'],
  [
    { attach: 'cni', cni: { cniVersion: '1.0.0', type: 'sriov', ipam: { type: 'evil' } } },
    { allowedPlugins: ['sriov'] },
    'the CNI plugin evil is not allowed',
  ],
  [
    { attach: 'cni', cni: { cniVersion: '1.0.0', type: 'sriov', IPAM: { Type: 'evil' } } },
    { allowedPlugins: ['sriov'] },
    'the CNI plugin evil is not allowed',
  ],
  [{ ipam: { type: 'static', TYPE: 'evil' } }, { allowedPlugins: ['static'] }, 'the CNI plugin evil is not allowed'],
  [{ attach: 'cni', networkAttachmentDefinition: definition }, { allowedPlugins: ['sriov'] }, 'the CNI plugin evil'],
  [
    { attach: 'cni', networkAttachmentDefinition: definition },
    { definitionNamespaces: ['default'] },
    'NetworkAttachmentDefinitions of namespace networks may not say which plugins run',
  ],
  [{ attach: 'cni', networkAttachmentDefinition: definition }, { definitionNamespaces: ['networks'] }, 'prepared'],
  [
    { attach: 'cni', networkAttachmentDefinition: { name: 'own' } },
    { definitionNamespaces: [] },
    'namespace default may not',
  ],
  [{ mtu: 1400 }, { uses: [], allowedPlugins: [], definitionNamespaces: [] }, 'prepared'],
])('config %j under the CNI plugin rules %j: %s', async (fields, rules, expected) => {
  expect(await outcome(fields, rules)).toContain(expected);
});
