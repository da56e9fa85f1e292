import { dump } from 'js-yaml';
import { type ClaimField, claimFields, closedFields } from '../../src/driver/api/claim-fields.ts';
import { classConfigSchema } from '../../src/driver/api/class-config.ts';
import { vfConfigSchema } from '../../src/driver/api/vf-config.ts';
import { formRules } from './form.ts';

/** A field of a claim's VFConfig, for the policy that compares claims with classes. */
interface FieldRule {
  field: string;
  /** Part of the names of CEL variables. */
  id: string;
  /** CEL, true if the VFConfig `c` of a claim requests the field. */
  asked: string;
  /** CEL, true if the VFConfig `c` has it. */
  set: string;
  value: string;
  isClosed: boolean;
  /** CEL, true if it is not what the class sets. */
  differs: string;
  /** CEL, true if the class closes the field through another one. */
  closedBy: string;
}

/** deploy/helm/netdra/vfconfig-rules.yaml, the source of the chart's policies: the driver's checks, in CEL. */
export function renderRules(): string {
  const head = `# Made from the schemas in src/driver/claims and src/driver/state by \`npm run manifests\`; a test checks that it is current.\n`;
  const rules = {
    claimForm: formRules(vfConfigSchema),
    classForm: formRules(classConfigSchema),
    fields: claimFields.map(fieldRule),
  };
  return head + dump(rules, { lineWidth: -1, noRefs: true });
}

function fieldRule(field: ClaimField): FieldRule {
  const [outer = '', inner] = field.split('.');
  const set = inner === undefined ? `has(c.${outer})` : `has(c.${outer}) && has(c.${outer}.${inner})`;
  const id = field.replace('.', '_');
  // Values that are the same as none: a definition in the claim's own namespace, and the default of a bond's mode.
  const asNone: Partial<Record<ClaimField, string>> = {
    'networkAttachmentDefinition.namespace': 'request.namespace',
    'bond.mode': '"active-backup"',
  };
  return {
    field,
    id,
    asked: asNone[field] === undefined ? set : `${set} && c.${field} != ${asNone[field]}`,
    set,
    value: `c.${field}`,
    differs: field === 'sysctls' ? sysctlsDiffer : `c.${field} != ${lastOf(`variables.set_${id}`)}`,
    isClosed: closedFields.some((each) => each === field),
    closedBy: field === 'addresses' || field === 'routes' ? 'variables.ofClass.exists(c, has(c.ipam))' : 'false',
  };
}

function lastOf(list: string): string {
  return `${list}[${list}.size() - 1]`;
}

/** Each counts by itself, and of several entries of the class the last one that sets it. */
const sysctlsDiffer = `!c.sysctls.all(k, variables.set_sysctls.exists(s, k in s) && c.sysctls[k] == ${lastOf('variables.set_sysctls.filter(s, k in s)')}[k])`;
