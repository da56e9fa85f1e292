/**
 * The points at which the state of the host or of the store changes. Tests stop, delay or fail the driver at each; a
 * step is named here before it can be used, so that none is forgotten.
 */
export const steps = [
  'hook-started',
  'attachment-recorded',
  'vf-moved',
  'vf-configured',
  'state-read',
  'network-data-stored',
  'metadata-written',
  'release-started',
  'vf-returned',
  'attachment-cleared',
] as const;
export type Step = (typeof steps)[number];

/** Called at each step, with what it is about; in production it does nothing. */
export type OnStep = (step: Step, subject: { pod?: string; device?: string }) => void | Promise<void>;
