/** What CNI plugins may be used for: to attach VFs, and to give addresses. */
export const cniUses = ['attach', 'ipam'] as const;
export type CniUse = (typeof cniUses)[number];
