/**
 * Renders deploy/manifests/netdra.yaml from the chart, and the chart's rules and the schemas of its definitions from the schemas of the
 * driver: `npm run manifests`.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { renderRules } from '../deploy/admission/rules.ts';
import { definitions, renderDefinition } from '../deploy/helm/definitions.ts';
import { renderValuesSchema } from '../deploy/helm/values-schema.ts';
import { renderManifest } from '../e2e/release/chart.ts';
import { fetchHelm } from '../e2e/release/helm.ts';
import { explain, NetdraError } from '../src/lib/errors.ts';
import { cacheFolder } from './packages/cache-folder.ts';
import { run } from './packages/run.ts';

try {
  await fetchHelm(cacheFolder(process.env), (line) => console.error(`netdra: ${line}`));
  writeFileSync(new URL('../deploy/helm/netdra/vfconfig-rules.yaml', import.meta.url), renderRules());
  for (const [file, spec] of Object.entries(definitions))
    writeFileSync(new URL(`../deploy/helm/netdra/${file}`, import.meta.url), renderDefinition(spec));
  const valuesSchema = fileURLToPath(new URL('../deploy/helm/netdra/values.schema.json', import.meta.url));
  writeFileSync(valuesSchema, renderValuesSchema(readFileSync(valuesSchema, 'utf8')));
  run('biome', ['format', '--write', valuesSchema]);
  writeFileSync(new URL('../deploy/manifests/netdra.yaml', import.meta.url), renderManifest());
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
}
