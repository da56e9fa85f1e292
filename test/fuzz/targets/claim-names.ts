import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ClaimMetadata, layouts, MetadataError } from '../../../src/framework/metadata/index.ts';
import { sampleDocuments } from '../samples.ts';
import { scratchDir } from '../scratch.ts';
import { expectThat, type FuzzTarget, jsonSeeds, parseJson } from '../target.ts';

const driver = 'sriov.netdra.dev';
const device = { ...sampleDocuments[1]!.devices[0]!, driver };

const good = ['default', 'fast-net', 'uid-1', 'vf', 'nic', 'pod-1'];

/** All files below a directory that contains only the directories given to the driver. */
function filesIn(dir: string): string[] {
  return readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map(({ parentPath, name }) => join(parentPath, name));
}

/** Unusual names: `[namespace, name, uid, request, pod's name for the claim, pod's UID]`. */
export const target: FuzzTarget = {
  name: 'claim-names',
  errors: [MetadataError],
  shape: 'json',
  dictionary: ['..', '/', '\\u0000', '~', '_', 'constructor', '__proto__', '.tmp', '\\ud800'],
  seeds: () =>
    jsonSeeds(
      good,
      ['n'.repeat(63), 'c'.repeat(253), 'uid-1', 'r'.repeat(63), 'p'.repeat(63), 'pod-1'],
      ['..', '../..', '../../x', '..', '..', '..'],
      ...['a/b', '../x', '..'].flatMap((text) => good.map((_, index) => good.with(index, text))),
      ['a_b', 'c', 'uid_1', 'constructor', '', 'pod-1'],
    ),
  async run(input) {
    const names = parseJson(input);
    if (!Array.isArray(names) || !names.every((name) => typeof name === 'string')) return;
    const [namespace = '', name = '', uid = '', request = '', podClaimName = '', podUid = ''] = names;
    const dir = scratchDir();
    const inside = join(dir, 'a', 'b', 'c');
    const metadata = new ClaimMetadata({
      enabled: true,
      driver,
      dataDir: join(inside, 'data'),
      cdiDir: join(inside, 'cdi'),
      attributesDir: join(inside, 'attributes'),
      downwardApiDir: join(inside, 'downward'),
      layouts: Object.values(layouts),
    });
    const claim = { namespace, name, uid };
    const requests = Object.fromEntries([[request, { name: request, devices: [device] }]]);
    try {
      await metadata.prepare({ claim, podClaimName, podUid, requests }, new Map());
      await metadata.update(claim, request, [device]);
      if (request !== 'constructor') expectThat((await metadata.read(claim, 'constructor')) === undefined, 'inherited');
      await metadata.unprepare(claim);
      expectThat(filesIn(dir).length === 0, `left behind: ${filesIn(dir).join(', ')}`);
    } finally {
      const outside = filesIn(dir).filter((path) => !path.startsWith(`${inside}/`));
      rmSync(join(dir, 'a'), { recursive: true, force: true });
      expectThat(outside.length === 0, `written outside of its directories: ${outside.join(', ')}`);
    }
  },
};
