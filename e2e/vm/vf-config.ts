const vfConfigType = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };

/** An entry of a claim's configuration. */
export type ClaimConfig = ReturnType<typeof vfConfig | typeof classConfig>;

/** A user's entry in a claim. */
export function vfConfig(fields: object) {
  return { source: 'FromClaim' as const, parameters: { ...vfConfigType, ...fields } };
}

/** The operator's entry in the class, which is the only source of some fields. */
export function classConfig(fields: object) {
  return { source: 'FromClass' as const, parameters: { ...vfConfigType, ...fields } };
}
