/**
 * Provides the requirements of the tests of the image, chart and alert rules, before they run without a network:
 * the driver's image, Helm, a registry and Prometheus:
 * `node scripts/fetch-release-tools.ts [--without-image]`.
 */
import { parseArgs } from 'node:util';
import { buildDriverImage } from '../e2e/release/driver-image.ts';
import { fetchHelm } from '../e2e/release/helm.ts';
import { fetchPrometheus } from '../e2e/release/prometheus.ts';
import { fetchRegistry } from '../e2e/release/registry.ts';
import { explain, NetdraError } from '../src/lib/errors.ts';
import { cacheFolder } from './packages/cache-folder.ts';

const { values } = parseArgs({ options: { 'without-image': { type: 'boolean', default: false } } });
const log = (line: string) => console.error(`netdra: ${line}`);
const cacheDir = cacheFolder(process.env);

try {
  fetchPrometheus(cacheDir, process.env, log);
  await fetchHelm(cacheDir, log);
  await fetchRegistry(cacheDir, log);
  if (!values['without-image']) buildDriverImage(cacheDir, log);
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
}
