import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { ClaimMetadata, layouts, MetadataError } from '../../../src/framework/metadata/index.ts';
import { sampleDocuments } from '../samples.ts';
import { scratchDir } from '../scratch.ts';
import { expectThat, type FuzzTarget, parseJson } from '../target.ts';

const driver = 'sriov.netdra.dev';
const { claim, devices } = sampleDocuments[1]!;
const requests = { vf: { name: 'vf/large', devices: devices.map(({ pool, name }) => ({ pool, name })) } };

function openMetadata(dir: string): ClaimMetadata {
  return new ClaimMetadata({
    enabled: true,
    driver,
    dataDir: join(dir, 'data'),
    cdiDir: join(dir, 'cdi'),
    attributesDir: join(dir, 'attributes'),
    downwardApiDir: join(dir, 'downward'),
    layouts: [layouts.v1, layouts.kep],
  });
}

function filesIn(dir: string): string[] {
  const entries = readdirSync(dir, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
}

/** Finds the driver's record file of the claim, as written by the driver itself. */
async function findRecord(dir: string): Promise<string> {
  await openMetadata(dir).prepare({ claim, podClaimName: 'nic', requests }, new Map());
  const path = filesIn(dir).find((file) => basename(file) === 'claim.json');
  if (path === undefined) throw new Error('a prepared claim has no file claim.json');
  return path;
}

let recordPath: string | undefined;

/** Whether it is a record of another claim of the same name, which keeps its files. */
function isOfAnother(input: Uint8Array): boolean {
  const record = parseJson(input) as { claim?: { uid?: unknown } } | null | undefined;
  const uid = record?.claim?.uid;
  return typeof uid === 'string' && uid !== claim.uid;
}

/** Any bytes in the driver's record file of a claim: the record is refused or understood, and always removed. */
export const target: FuzzTarget = {
  name: 'claim-record',
  errors: [MetadataError],
  shape: 'json',
  seeds: () => [
    Buffer.from(
      JSON.stringify({
        schema: 1,
        claim,
        podClaimName: 'nic',
        layouts: ['v1'],
        requests: { vf: { ...requests.vf, generation: 0 } },
        servedBy: null,
      }),
    ),
    Buffer.from(
      JSON.stringify({
        schema: 1,
        claim,
        podUid: 'u1',
        bootId: 'b1',
        layouts: ['v1', 'kep'],
        requests: { vf: { ...requests.vf, generation: 2, content: { devices, since: '2026-01-01T00:00:00Z' } } },
        servedBy: 'sandbox-1',
      }),
    ),
  ],
  async run(input) {
    const dir = join(scratchDir(), 'claims');
    recordPath ??= await findRecord(dir);
    rmSync(dir, { recursive: true, force: true });
    mkdirSync(dirname(recordPath), { recursive: true });
    writeFileSync(recordPath, input);
    const metadata = openMetadata(dir);
    try {
      await metadata.read(claim, 'vf');
      await metadata.update(claim, 'vf', devices);
    } finally {
      await metadata.unprepare(claim);
      const left = filesIn(dir);
      expectThat(left.length === 0 || isOfAnother(input), `left behind: ${left.map((path) => basename(path))}`);
    }
  },
};
