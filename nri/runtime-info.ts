import type { WireConfigureRequest } from './wire.ts';

/** The runtime's limits if it does not report them (NRI before v0.7), milliseconds. */
export const defaultRegistrationTimeoutMs = 5_000;
export const defaultRequestTimeoutMs = 2_000;

export interface RuntimeInfo {
  /** Name of the runtime: `containerd` or `cri-o`. */
  name: string;
  /** Version in the form that the runtime's builder chose: `v2.3.1`, `2.1.9+unknown`, `1.7.24~ds1`. */
  version: string;
  /** Version of NRI, e.g. `v0.12.2`; reported only by NRI v0.12 and later. */
  nriVersion: string | undefined;
  /** How long the runtime waits for a new plugin to register, ms. */
  registrationTimeoutMs: number;
  /** How long the runtime waits for the answer to an event before it drops the plugin and proceeds without it, ms. */
  requestTimeoutMs: number;
}

export function parseRuntimeInfo(wire: WireConfigureRequest): RuntimeInfo {
  return {
    name: wire.runtimeName ?? '',
    version: wire.runtimeVersion ?? '',
    nriVersion: wire.nriVersion || undefined,
    registrationTimeoutMs: wire.registrationTimeout || defaultRegistrationTimeoutMs,
    requestTimeoutMs: wire.requestTimeout || defaultRequestTimeoutMs,
  };
}
