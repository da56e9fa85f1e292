/**
 * The suite on a separate node (scripts/in-node.sh), with podman and kind in PATH; started by machine.ts, which passes an
 * {@link EngineRun} in the environment. Exits with 0 if all tests passed.
 */
import { existsSync, mkdirSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { takeCacheEntries } from '../../../scripts/packages/cache.ts';
import { run } from '../../../scripts/packages/run.ts';
import { explain, NetdraError } from '../../../src/lib/errors.ts';
import { locateTools } from '../../node/tools.ts';
import { consumerImage, writeConsumerArchive } from '../../release/consumer-image.ts';
import { driverImage, writeDriverArchive } from '../../release/driver-image.ts';
import { runSuite } from '../suite.ts';
import { type EngineRun, engineFolder, runVariable } from './machine.ts';
import { nodeImageEntry, nodeImageName } from './node-image.ts';
import { setUpPodman } from './podman.ts';

const print = (line: string) => console.error(`netdra: ${line}`);
const stateDir = '/run/netdra/podman';

/** Nodes mount this folder, which machines without modules do not have. */
function provideModulesFolder(): void {
  if (existsSync('/lib/modules')) return;
  const added = join(stateDir, 'lib');
  mkdirSync(join(added, 'modules'), { recursive: true });
  const libraries = realpathSync('/lib');
  run('mount', ['-t', 'overlay', '-o', `lowerdir=${added}:${libraries}`, 'netdra-modules', libraries]);
}

async function main({ cacheDir, packages, programs, version, settings, store }: EngineRun): Promise<boolean> {
  mkdirSync(stateDir, { recursive: true });
  provideModulesFolder();
  const { podman, node } = packages;
  const { kind, helm, ...kubernetes } = programs;
  const image = nodeImageEntry({ packages: node, podmanPackages: podman, kubernetes, version, tools: locateTools() });
  print('providing the image of the node');
  // The lock keeps the store of the image until the suite has ended.
  const { folders, lock } = takeCacheEntries(engineFolder(cacheDir), [image]);
  using _ = lock;
  const bin = setUpPodman({ packages: podman, state: join(stateDir, 'run'), store, imageStores: folders });
  const archives = ['driver.tar', 'consumer.tar'].map((name) => join(store, name)) as [string, string];
  writeDriverArchive(archives[0], cacheDir);
  writeConsumerArchive(archives[1]);
  const env = { ...process.env, PATH: [bin, kind, helm, process.env.PATH].join(':') };
  const images = { nodeImage: nodeImageName(version), imageArchives: archives, driverImage, consumerImage };
  return await runSuite({ ...settings, ...images, engine: 'podman' }, { env, print });
}

try {
  process.exitCode = (await main(JSON.parse(process.env[runVariable] ?? '') as EngineRun)) ? 0 : 1;
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  print(explain(error));
  process.exitCode = 1;
}
