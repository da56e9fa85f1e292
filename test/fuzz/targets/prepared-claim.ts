import { KubeletPluginError } from '../../../src/framework/kubeletplugin/index.ts';
import { resolvePreparedClaim } from '../../../src/framework/kubeletplugin/prepared-claim.ts';
import { expectThat, type FuzzTarget, jsonSeeds, parseJson } from '../target.ts';

const driver = 'sriov.netdra.dev';
const identity = { namespace: 'default', name: 'fast-net', uid: 'uid-1' };

const isRow = (row: unknown): row is string[] => Array.isArray(row) && row.every((name) => typeof name === 'string');

/** Names of requests and devices of an allocation: `[[request, pool, device], …]`. */
export const target: FuzzTarget = {
  name: 'prepared-claim',
  errors: [KubeletPluginError],
  shape: 'json',
  dictionary: ['constructor', '__proto__', 'toString', '/', 'vf/large'],
  seeds: () =>
    jsonSeeds(
      [['vf', 'node-1', 'dev-1']],
      [
        ['vf/large', 'node-1', 'dev-1'],
        ['vf/large', 'node-1', 'dev-2'],
        ['constructor', 'node-1', 'dev-3'],
      ],
    ),
  run(input) {
    const rows = parseJson(input);
    if (!Array.isArray(rows) || !rows.every(isRow)) return;
    const results = rows.map(([request = '', pool = '', device = '']) => ({ request, pool, device, driver }));
    const claim = { identity, podClaimName: undefined, results, podUids: [], object: {} as never };
    const { record, devices } = resolvePreparedClaim(driver, claim, { devices: [] });
    expectThat(devices.length === results.length, `${devices.length} devices of ${results.length}`);
    const bases = new Set(results.map(({ request }) => request.split('/')[0]));
    expectThat(Object.keys(record.requests).length === bases.size, 'a request was lost, or one was added');
  },
};
