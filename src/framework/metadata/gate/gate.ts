import { defined } from '../../../lib/defined.ts';
import type { ClaimIdentity, ClaimName } from '../document/document.ts';
import { MetadataError } from '../errors.ts';
import { createFile, type HostFile, hostPath, readFileIfThere, removeFile } from '../files/host-file.ts';
import { claimDirectory, metadataDirName } from '../layouts/layout-v1.ts';

/** The OCI hook that keeps containers of a claim from starting. Runtimes run it on the host, as root. */
export interface GateHook {
  /** `netdra-gate` as the host sees it; absolute. */
  program: string;
  /** How long a container waits for its sandbox to be served: 1 to 110 s, as the kubelet's call ends after 120 s. */
  timeoutSeconds: number;
}

/**
 * What the gate of a claim says. `served`: containers of that sandbox start. `waiting`: not yet, and why. `ended`:
 * never, since the sandbox is being stopped. Containers of any other sandbox wait.
 */
export interface Gate {
  state: 'served' | 'waiting' | 'ended';
  /** As the container runtime names it. */
  sandboxId: string;
  /** With `waiting`: one line. */
  reason?: string;
}

/** Also read by `programs/src/gate-file.c`. */
const firstLine = 'netdra-gate 1';
const maxReasonChars = 512;
/** The runtime's own timer expires after that of the program, whose message says more. */
const runtimeGraceSeconds = 5;

/** @throws MetadataError `metadata-invalid` */
export function checkGateHook({ program, timeoutSeconds }: GateHook): void {
  if (!program.startsWith('/')) throw invalid(`gate program ${JSON.stringify(program)} is not an absolute path`);
  if (!Number.isInteger(timeoutSeconds) || timeoutSeconds < 1 || timeoutSeconds > 110) {
    throw invalid(`gate timeout of ${timeoutSeconds} s: 1 to 110 s expected`);
  }
}

/** Whether the arguments of an OCI hook are those of a claim's gate, or without a claim, those of any gate of ours. */
export function isGateOf(dataDir: string, claim: ClaimIdentity | undefined, hookArgs: readonly string[]): boolean {
  const dir = hookArgs[hookArgs.indexOf('--claim-dir') + 1];
  if (claim !== undefined) return dir === hostPath(claimDirectory(dataDir, claim));
  return dir?.startsWith(`${hostPath({ base: dataDir, parts: [metadataDirName] })}/`) === true;
}

/** The hook for the CDI spec of a claim's request. */
export function gateHook({ program, timeoutSeconds }: GateHook, dataDir: string, claim: ClaimIdentity) {
  const claimDir = hostPath(claimDirectory(dataDir, claim));
  return {
    hookName: 'createRuntime',
    path: program,
    args: [program, '--claim-dir', claimDir, '--timeout', String(timeoutSeconds)],
    timeout: timeoutSeconds + runtimeGraceSeconds,
  };
}

/** @returns `undefined` if there is none, or one that says nothing. @throws MetadataError `metadata-io` */
export function readGate(dataDir: string, claim: ClaimIdentity): Gate | undefined {
  return parseGate(readFileIfThere(gateFile(dataDir, claim)) ?? '');
}

/** A gate that already says so is not touched. @throws MetadataError `metadata-io`, `metadata-name-invalid` */
export function writeGate(dataDir: string, claim: ClaimIdentity, gate: Gate): void {
  const file = gateFile(dataDir, claim);
  const text = formatGate(gate);
  // By rename: the program reads a complete file, and is woken by it.
  if (readFileIfThere(file) !== text) createFile(file, text);
}

/** The sandbox for which a gate is open, if it is open. @throws MetadataError `metadata-io` */
export function openFor(dataDir: string, claim: ClaimIdentity): string | null {
  const gate = readGate(dataDir, claim);
  return gate?.state === 'served' ? gate.sandboxId : null;
}

/** From now on no container starts. @throws MetadataError `metadata-io` */
export function closeGate(dataDir: string, claim: ClaimIdentity): void {
  removeFile(gateFile(dataDir, claim));
}

/** @throws MetadataError `metadata-name-invalid` */
export function checkSandboxId(sandboxId: string): void {
  if (/^[\x21-\x7e]{1,128}$/.test(sandboxId)) return;
  throw new MetadataError('metadata-name-invalid', `sandbox id ${JSON.stringify(sandboxId)} cannot be used`);
}

/** @throws MetadataError `metadata-name-invalid` */
export function formatGate({ state, sandboxId, reason }: Gate): string {
  checkSandboxId(sandboxId);
  const words = state === 'waiting' ? [state, sandboxId, oneLine(reason ?? '')] : [state, sandboxId];
  return `${firstLine}\n${words.join(' ').trimEnd()}\n`;
}

export function parseGate(text: string): Gate | undefined {
  const [first, second = ''] = text.split('\n');
  const [, state, sandboxId, reason] = /^(served|waiting|ended) (\S+)(?: (.*))?$/.exec(second) ?? [];
  if (first !== firstLine || sandboxId === undefined) return undefined;
  if (state === 'served' || state === 'ended') return { state, sandboxId };
  return { state: 'waiting', sandboxId, ...defined({ reason }) };
}

/** Reasons contain text from CNI plugins and the kernel. */
function oneLine(text: string): string {
  return text
    .replaceAll(/[\s\p{C}]+/gu, ' ')
    .trim()
    .slice(0, maxReasonChars)
    .toWellFormed();
}

/** In the claim's directory, so that waiting programs notice the removal of either. */
function gateFile(dataDir: string, claim: ClaimName): HostFile {
  const { base, parts } = claimDirectory(dataDir, claim);
  return { base, parts: [...parts, 'gate'] };
}

function invalid(message: string): MetadataError {
  return new MetadataError('metadata-invalid', message);
}
