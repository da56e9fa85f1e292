const vfConfigType = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };

/** An entry of a claim's configuration. */
export type ClaimConfig = ReturnType<typeof vfConfig | typeof classConfig>;

/** What the user writes into a claim. */
export function vfConfig(fields: object) {
  return { source: 'FromClaim' as const, parameters: { ...vfConfigType, ...fields } };
}

/** What the operator writes into the class: some fields are taken from there only. */
export function classConfig(fields: object) {
  return { source: 'FromClass' as const, parameters: { ...vfConfigType, ...fields } };
}
