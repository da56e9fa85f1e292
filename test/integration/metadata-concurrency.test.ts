import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { baseRequest, type ClaimMetadata, layoutNames, readMetadataFile } from '../../src/framework/metadata/index.ts';
import { Bench } from '../unit/framework/metadata/bench.ts';
import { driver } from '../unit/framework/metadata/samples.ts';

const rounds = 100;
const operationsPerRound = 64;
const claimCount = 16;

type Kind = 'prepare' | 'prepareSuccessor' | 'update' | 'updateAgain' | 'withdraw' | 'unprepare';

interface Operation {
  kind: Kind;
  /** 0 … 15. */
  claim: number;
}

const operation: fc.Arbitrary<Operation> = fc.record({
  kind: fc.oneof(
    { weight: 3, arbitrary: fc.constant<Kind>('prepare') },
    { weight: 6, arbitrary: fc.constant<Kind>('update') },
    { weight: 2, arbitrary: fc.constant<Kind>('updateAgain') },
    { weight: 2, arbitrary: fc.constant<Kind>('unprepare') },
    { weight: 1, arbitrary: fc.constant<Kind>('withdraw') },
    { weight: 1, arbitrary: fc.constant<Kind>('prepareSuccessor') },
  ),
  claim: fc.nat({ max: claimCount - 1 }),
});

/** What a claim is to be like after the operations so far, had they come one after the other. */
interface Model {
  life: number;
  prepared: boolean;
  generation: number;
  /** What the files say. */
  value: number | undefined;
  /** Whether they said something before, and containers may still have them mounted. */
  isWithdrawn: boolean;
  lastValue: number;
}

const request = 'vf/large';

/** A claim of the model: four claims share a pod. */
function identityOf(index: number, { life }: Model) {
  return { namespace: 'default', name: `claim-${index}`, uid: `uid-${index}-life-${life}` };
}

function recordOf(index: number, model: Model) {
  const devices = [{ pool: 'node-1', name: `dev-${index}` }];
  const claim = identityOf(index, model);
  return { claim, podUid: `pod-${index % 4}`, requests: { [baseRequest(request)]: { name: request, devices } } };
}

const deviceOf = (index: number, value: number) => [
  { driver, pool: 'node-1', name: `dev-${index}`, attributes: { value: { int: value } } },
];

/** Starts an operation, and gives what has to come of it: a generation, nothing, or the refusal of an update. */
function start(metadata: ClaimMetadata, { kind, claim: index }: Operation, model: Model): [Promise<unknown>, unknown] {
  if (kind === 'prepare' || kind === 'prepareSuccessor') {
    const isNew = kind === 'prepareSuccessor' || !model.prepared;
    // Unprepared claims come back under the same UID too: their generations start anew.
    if (kind === 'prepareSuccessor') model.life++;
    if (isNew) Object.assign(model, { prepared: true, generation: 0, value: undefined, isWithdrawn: false });
    const record = recordOf(index, model);
    const id = `${driver}/metadata=${record.claim.uid}_vf`;
    return [metadata.prepare(record, new Map()), new Map([['vf', id]])];
  }
  const claim = identityOf(index, model);
  if (kind === 'unprepare') {
    Object.assign(model, { prepared: false, generation: 0, value: undefined, isWithdrawn: false });
    return [metadata.unprepare(claim), undefined];
  }
  if (kind === 'withdraw') {
    model.isWithdrawn ||= model.value !== undefined;
    model.value = undefined;
    return [metadata.withdraw(claim), undefined];
  }
  const value = kind === 'updateAgain' ? model.lastValue : ++model.lastValue;
  const updating = metadata.update(claim, 'vf', deviceOf(index, value)).catch((error) => error.code);
  if (!model.prepared) return [updating, 'metadata-not-prepared'];
  const isWritten = model.value !== value;
  if (isWritten) Object.assign(model, { value, generation: model.generation + 1, isWithdrawn: false });
  return [updating, { generation: model.generation, isWritten }];
}

/** The files that have to be there, by their paths below the node's directory. */
function expectedFiles(models: Model[]): string[] {
  return models.flatMap((model, index) => {
    if (!model.prepared) return [];
    const { uid } = identityOf(index, model);
    const dir = `data/dra-device-metadata/default_claim-${index}`;
    const files = [
      [`${dir}/vf`, 'metadata.json'],
      [`${dir}/vf`, 'metadata-kep.json'],
      [`pods/pod-${index % 4}`, `claim-${index}.vf.json`],
    ] as const;
    return [
      `cdi/${driver}_metadata_${uid}_vf.json`,
      `attributes/${driver}-${uid}-vf.json`,
      `${dir}/claim.json`,
      ...(model.value === undefined ? [] : files.map((parts) => parts.join('/'))),
      ...(model.isWithdrawn ? files.map(([folder, name]) => `${folder}/.${name}.withdrawn`) : []),
    ];
  });
}

describe('concurrent prepare, update and unprepare', () => {
  it(`end in the state of some sequential order: ${rounds} rounds of ${operationsPerRound} operations on ${claimCount} claims`, async () => {
    let round = 0;
    const everySeen = new Set<Kind>();
    const scenario = fc.array(operation, { minLength: operationsPerRound, maxLength: operationsPerRound });
    await fc.assert(
      fc.asyncProperty(scenario, async (operations) => {
        round++;
        using bench = new Bench();
        const metadata = bench.start({ layouts: layoutNames, attributesOf: () => ({ value: { int: 0 } }) });
        const models = Array.from(
          { length: claimCount },
          (): Model => ({
            life: 0,
            prepared: false,
            generation: 0,
            value: undefined,
            isWithdrawn: false,
            lastValue: 0,
          }),
        );
        const running = operations.map((each) => {
          everySeen.add(each.kind);
          return start(metadata, each, models[each.claim] as Model);
        });
        expect(await Promise.all(running.map(([result]) => result))).toEqual(running.map(([, expected]) => expected));
        expect(bench.files()).toEqual(expectedFiles(models).toSorted());
        for (const [index, { value, generation }] of models.entries()) {
          if (value === undefined) continue;
          for (const file of ['metadata.json', 'metadata-kep.json']) {
            const path = join(bench.dataDir, `dra-device-metadata/default_claim-${index}/vf`, file);
            expect(await readMetadataFile(path)).toMatchObject({
              generation,
              request,
              devices: deviceOf(index, value),
            });
          }
        }
        await Promise.all(models.map((model, index) => metadata.unprepare(identityOf(index, model))));
        expect(bench.files()).toEqual([]);
      }),
      { numRuns: rounds },
    );
    expect(round).toBeGreaterThanOrEqual(rounds);
    expect(everySeen.size).toBe(6);
  }, 180_000);
});
