import {
  type NetworkAttachmentDefinition,
  resolveNetworkAttachment,
} from '../../../src/driver/claims/network-attachments.ts';
import { DriverError } from '../../../src/driver/model/index.ts';
import { CniError } from '../../../src/node/cni/index.ts';
import { buildClaim } from '../../doubles/objects.ts';
import { expectThat, type FuzzTarget, jsonSeeds, parseJson } from '../target.ts';

const object = buildClaim('fast-net', { requests: [{ name: 'vf', devices: ['dev-1'] }] });
const { namespace, name, uid } = object.metadata;
const claim = { identity: { namespace, name, uid }, podClaimName: undefined, results: [], podUids: [], object };
const config = { attach: 'cni', networkAttachmentDefinition: { name: 'fast' } } as const;

const network = { cniVersion: '1.0.0', plugins: [{ type: 'sriov', vlan: 7, ipam: { type: 'host-local' } }] };

/** A NetworkAttachmentDefinition as returned by the API server. Another project defines its kind. */
export const target: FuzzTarget = {
  name: 'network-attachment',
  errors: [DriverError, CniError],
  shape: 'json',
  dictionary: ['{"cniVersion":"1.0.0","type":"sriov"}', '{"type":"../x"}', ' ', '"plugins":[', '__proto__'],
  seeds: () =>
    jsonSeeds(
      { spec: { config: JSON.stringify(network) } },
      { spec: { config: JSON.stringify({ ...network, name: 'other', disableCheck: true }, null, 2) } },
      { metadata: { name: 'fast' }, spec: { config: '{"cniVersion":"0.3.1","type":"host-device","device":"eth1"}' } },
    ),
  async run(input) {
    const definition = parseJson(input);
    if (typeof definition !== 'object' || definition === null) return;
    const reader = { readNetworkAttachment: async () => definition as NetworkAttachmentDefinition };
    const { cni } = await resolveNetworkAttachment(config, claim, reader, new AbortController().signal);
    expectThat(cni !== undefined, 'accepted without a network configuration');
  },
};
