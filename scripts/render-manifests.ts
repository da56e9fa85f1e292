/** Renders deploy/manifests/netdra.yaml from the chart, and the chart's rules from the schemas: `npm run manifests`. */
import { writeFileSync } from 'node:fs';
import { renderRules } from '../deploy/admission/rules.ts';
import { renderManifest } from '../e2e/release/chart.ts';
import { fetchHelm } from '../e2e/release/helm.ts';
import { explain, NetdraError } from '../src/lib/errors.ts';
import { cacheFolder } from './packages/cache-folder.ts';

try {
  await fetchHelm(cacheFolder(process.env), (line) => console.error(`netdra: ${line}`));
  writeFileSync(new URL('../deploy/helm/netdra/vfconfig-rules.yaml', import.meta.url), renderRules());
  writeFileSync(new URL('../deploy/manifests/netdra.yaml', import.meta.url), renderManifest());
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
}
