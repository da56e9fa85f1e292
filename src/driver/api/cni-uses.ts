/** Uses of CNI plugins: to attach VFs, and to assign addresses. */
export const cniUses = ['attach', 'ipam'] as const;
export type CniUse = (typeof cniUses)[number];
