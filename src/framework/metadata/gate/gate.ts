import { defined } from '../../../lib/defined.ts';
import type { ClaimIdentity, ClaimName } from '../document/document.ts';
import { MetadataError } from '../errors.ts';
import { createFile, type HostFile, hostPath, readFileIfThere, removeFile } from '../files/host-file.ts';
import { claimDirectory, metadataDirName } from '../layouts/layout-v1.ts';

/** The OCI hook that keeps containers of a claim from starting. Runtimes run it on the host, as root. */
export interface GateHook {
  /** Absolute path of `netdra-gate` on the host. */
  program: string;
  /**
   * Time that a container waits for its sandbox to be served, in seconds: 1 to 110, since the kubelet's call ends after 120 s.
   */
  timeoutSeconds: number;
}

/**
 * Content of a claim's gate file. `served`: containers of the sandbox start. `waiting`: they must wait, with the reason.
 * `ended`: they never start, since the sandbox is being stopped. Containers of any other sandbox wait.
 */
export interface Gate {
  state: 'served' | 'waiting' | 'ended';
  /** The runtime's ID of the sandbox. */
  sandboxId: string;
  /** Reason in state `waiting`, one line. */
  reason?: string;
}

/** First line of the gate file, also read by `programs/src/gate-file.c`. */
const firstLine = 'netdra-gate 1';
const maxReasonChars = 512;
/** Seconds by which the runtime's timer expires after the program's, whose error message says more. */
const runtimeGraceSeconds = 5;

/** Checks the options of a hook. @throws MetadataError `metadata-invalid` */
export function checkGateHook({ program, timeoutSeconds }: GateHook): void {
  if (!program.startsWith('/')) throw invalid(`gate program ${JSON.stringify(program)} is not an absolute path`);
  if (!Number.isInteger(timeoutSeconds) || timeoutSeconds < 1 || timeoutSeconds > 110) {
    throw invalid(`gate timeout of ${timeoutSeconds} s is not between 1 and 110 s`);
  }
}

/** Returns whether the arguments of an OCI hook are those of a claim's gate; without `claim`, of any gate in this directory. */
export function isGateOf(dataDir: string, claim: ClaimIdentity | undefined, hookArgs: readonly string[]): boolean {
  const dir = hookArgs[hookArgs.indexOf('--claim-dir') + 1];
  if (claim !== undefined) return dir === hostPath(claimDirectory(dataDir, claim));
  return dir?.startsWith(`${hostPath({ base: dataDir, parts: [metadataDirName] })}/`) === true;
}

/** Returns the hook for the CDI spec of a claim's request. */
export function gateHook({ program, timeoutSeconds }: GateHook, dataDir: string, claim: ClaimIdentity) {
  const claimDir = hostPath(claimDirectory(dataDir, claim));
  return {
    hookName: 'createRuntime',
    path: program,
    args: [program, '--claim-dir', claimDir, '--timeout', String(timeoutSeconds)],
    timeout: timeoutSeconds + runtimeGraceSeconds,
  };
}

/** Reads the gate file. @returns `undefined` if it is missing or empty @throws MetadataError `metadata-io` */
export function readGate(dataDir: string, claim: ClaimIdentity): Gate | undefined {
  return parseGate(readFileIfThere(gateFile(dataDir, claim)) ?? '');
}

/**
 * Writes the gate file, unless it already has this content.
 * @param isClosed whether `closeGate` has just removed the file, so that the content need not be compared
 * @throws MetadataError `metadata-io`, `metadata-name-invalid`
 */
export function writeGate(dataDir: string, claim: ClaimIdentity, gate: Gate, { isClosed = false } = {}): void {
  const file = gateFile(dataDir, claim);
  const text = formatGate(gate);
  // Written by rename: the program reads a complete file, and the rename wakes it up.
  if (isClosed || readFileIfThere(file) !== text) createFile(file, text);
}

/** Returns the ID of the sandbox for which a gate is open; `null` if the gate is closed. @throws MetadataError `metadata-io` */
export function openFor(dataDir: string, claim: ClaimIdentity): string | null {
  const gate = readGate(dataDir, claim);
  return gate?.state === 'served' ? gate.sandboxId : null;
}

/** Closes the gate: from now on no container starts. @throws MetadataError `metadata-io` */
export function closeGate(dataDir: string, claim: ClaimIdentity): void {
  removeFile(gateFile(dataDir, claim));
}

/** Checks that a sandbox ID can be part of a gate file. @throws MetadataError `metadata-name-invalid` */
export function checkSandboxId(sandboxId: string): void {
  if (/^[\x21-\x7e]{1,128}$/.test(sandboxId)) return;
  throw new MetadataError('metadata-name-invalid', `sandbox id ${JSON.stringify(sandboxId)} cannot be used`);
}

/** Returns the text of a gate file. @throws MetadataError `metadata-name-invalid` */
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

/** Joins the lines of a reason, which may contain text from CNI plugins and the kernel. */
function oneLine(text: string): string {
  return text
    .replaceAll(/[\s\p{C}]+/gu, ' ')
    .trim()
    .slice(0, maxReasonChars)
    .toWellFormed();
}

/**
 * Returns the gate file. It is in the claim's directory, so that waiting programs notice when the file or the directory is
 * removed.
 */
function gateFile(dataDir: string, claim: ClaimName): HostFile {
  const { base, parts } = claimDirectory(dataDir, claim);
  return { base, parts: [...parts, 'gate'] };
}

function invalid(message: string): MetadataError {
  return new MetadataError('metadata-invalid', message);
}
