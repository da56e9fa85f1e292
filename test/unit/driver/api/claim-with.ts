import { resolveVfConfig } from '../../../../src/driver/api/config.ts';
import type { ClosedField } from '../../../../src/driver/model/index.ts';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';
import { parseCidr } from '../../../../src/node/netlink/index.ts';
import { buildClaim, type ConfigOptions, testDriver } from '../../../doubles/objects.ts';

export function claimWith(config: ConfigOptions[]): AllocatedClaim {
  const object = buildClaim('fast-net', { requests: [{ name: 'vf', devices: ['dev-1'] }], config });
  const { namespace, name, uid } = object.metadata;
  return { identity: { namespace, name, uid }, podClaimName: undefined, results: [], podUids: [], object };
}

export const nodeNetworks = [parseCidr('10.1.0.5/16'), parseCidr('2001:db8:1::5/64')];

export const resolve = (config: ConfigOptions[], open: readonly ClosedField[] = [], request = 'vf') =>
  resolveVfConfig(testDriver, claimWith(config), request, { open, nodeNetworks });
