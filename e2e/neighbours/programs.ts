/** The modules of `e2e/go` that this suite runs, with the releases of other projects that use that code. */
export const nriRuntimes = [
  { module: 'nri-runtime-0.8', version: '0.8.0', of: 'containerd 1.7.35 and 2.1.9', knowsFailurePolicy: false },
  { module: 'nri-runtime-0.12.5', version: '0.12.5', of: 'no release of containerd yet', knowsFailurePolicy: true },
] as const;

export const deviceMetadata = [
  { module: 'device-metadata-0.36', version: '0.36.3', writes: ['v1alpha1'], validates: false },
  { module: 'device-metadata-0.37', version: '0.37.2', writes: ['v1beta1', 'v1alpha1'], validates: true },
] as const;

/** Asks the newest pre-release of Kubernetes about our objects. */
export const kubernetesNext = 'kubernetes-next';
