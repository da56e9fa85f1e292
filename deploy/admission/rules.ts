import { dump } from 'js-yaml';
import { classConfigSchema } from '../../src/driver/api/class-config.ts';
import { vfConfigSchema } from '../../src/driver/api/vf-config.ts';
import { formRules } from './form.ts';

/** deploy/helm/netdra/vfconfig-rules.yaml, the source of the chart's policies: the driver's checks, in CEL. */
export function renderRules(): string {
  const head = `# Made from the schemas in src/driver/claims and src/driver/state by \`npm run manifests\`; a test checks that it is current.\n`;
  const rules = {
    claimForm: formRules(vfConfigSchema),
    classForm: formRules(classConfigSchema),
  };
  return head + dump(rules, { lineWidth: -1, noRefs: true });
}
