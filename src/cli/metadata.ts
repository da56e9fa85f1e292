import {
  type ClaimIdentity,
  type ClaimRecords,
  claimName,
  type DecodedMetadata,
  type DeviceAttribute,
  type HostDirs,
  type InspectedClaim,
  inspectClaim,
  MetadataError,
  readMetadata,
  validateDevices,
} from '../framework/metadata/index.ts';
import { explain, NetdraError } from '../lib/errors.ts';
import type { Terminal } from './terminal.ts';

/** Content of a metadata file, and whether it is valid. */
export interface FileView {
  path: string;
  document?: DecodedMetadata;
  /** Fault of the content; absent if it is valid. */
  problem?: string;
}

/** Reads and checks a file with objects of metadata.resource.k8s.io, in any version. Never rejects. */
export async function viewFile(path: string): Promise<FileView> {
  let document: DecodedMetadata;
  try {
    document = await readMetadata(path);
  } catch (error) {
    return { path, problem: explain(error) };
  }
  try {
    for (const { name, devices } of document.requests) validateDevices(document.claim, name, devices);
    return { path, document };
  } catch (error) {
    if (!(error instanceof MetadataError)) throw error;
    return { path, document, problem: explain(error) };
  }
}

/** The files of a prepared claim. `documents` are the contents of the layouts with whole documents, `v1` and `kep`. */
export interface ClaimFilesView extends InspectedClaim {
  documents: FileView[];
}

/**
 * Finds a prepared claim by its name.
 * @returns `namespace/name` of the claim
 * @throws NetdraError `claim-not-prepared`, `claim-ambiguous`
 */
export function findClaim(claims: readonly { identity: ClaimIdentity }[], name: string): string {
  const found = claims.map(({ identity }) => identity).filter((identity) => identity.name === name);
  const [claim, ...others] = found.map(claimName);
  if (claim === undefined) {
    const message = `there is no file ${name}, and no claim of that name is prepared on this node`;
    throw new NetdraError('claim-not-prepared', message, { claim: name, hint: preparedHint });
  }
  if (others.length > 0) {
    const message = `several claims are called ${name}: ${[claim, ...others].join(', ')}`;
    throw new NetdraError('claim-ambiguous', message, { claim: name, hint: 'give namespace/name' });
  }
  return claim;
}

const preparedHint = 'run netdra claims to list the prepared claims; pass namespace/name, or the path of a file';

/**
 * Compares the files of a claim with its record, and reads their documents. @throws NetdraError `claim-not-prepared`;
 * MetadataError
 */
export async function viewClaimFiles(
  driver: string,
  dirs: HostDirs,
  subject: string,
  records?: ClaimRecords,
): Promise<ClaimFilesView> {
  const [namespace = '', name = ''] = subject.split('/');
  const inspected = await inspectClaim(driver, dirs, { namespace, name }, records);
  if (inspected === undefined) {
    const message = `claim ${subject} is not prepared on this node`;
    throw new NetdraError('claim-not-prepared', message, { claim: subject, hint: preparedHint });
  }
  const readable = inspected.files.filter(({ layout, state }) => {
    return (layout === 'v1' || layout === 'kep') && (state === 'current' || state === 'different');
  });
  return { ...inspected, documents: await Promise.all(readable.map(({ path }) => viewFile(path))) };
}

/** Returns whether no file has a problem. */
export function isGood(view: FileView | ClaimFilesView): boolean {
  if ('path' in view) return view.problem === undefined;
  const areFilesGood = view.files.every(({ state }) => state === 'current' || state === 'pending');
  return areFilesGood && view.documents.every(({ problem }) => problem === undefined);
}

export function formatFile(terminal: Terminal, { path, document, problem }: FileView): string {
  const verdict =
    problem === undefined ? terminal.style('green', 'valid') : `${terminal.style('red', 'not valid')}: ${problem}`;
  const content = document === undefined ? '' : formatDocument(terminal, document);
  return `${terminal.style('bold', path)}: ${verdict}\n${content}`;
}

export function formatClaimFiles(terminal: Terminal, view: ClaimFilesView): string {
  const { claim, requests, files, documents, gate } = view;
  const title = `claim ${claimName(claim)} (${claim.uid})`;
  const lines = requests.flatMap(({ name, base, generation }) => {
    const written = generation === 0 ? 'not written yet' : `generation ${generation}`;
    return [
      `request ${name}: ${written}`,
      ...files
        .filter(({ request }) => request === base)
        .map(({ layout, path, state }) => `  ${layout}: ${styleState(terminal, state)}  ${path}`),
    ];
  });
  if (gate !== undefined) lines.push(`start gate: ${formatGate(terminal, gate)}`);
  const contents = documents.map((file) => `\n${formatFile(terminal, file)}`);
  return `${terminal.style('bold', title)}\n${lines.map((line) => `${line}\n`).join('')}${contents.join('')}`;
}

function formatGate(terminal: Terminal, gate: NonNullable<InspectedClaim['gate']>): string {
  if (gate === 'silent') return terminal.style('yellow', 'closed: containers wait');
  const { state, sandboxId, reason } = gate;
  if (state === 'served') return `${terminal.style('green', 'open')} for sandbox ${sandboxId}`;
  const why = reason === undefined ? '' : `: ${reason}`;
  return `${terminal.style('yellow', state)} in sandbox ${sandboxId}${why}`;
}

const stateTexts: Record<InspectedClaim['files'][number]['state'], ['green' | 'yellow' | 'red', string]> = {
  current: ['green', 'up to date'],
  pending: ['yellow', 'not written yet, since the pod has no sandbox with the device'],
  missing: ['red', 'missing'],
  different: ['red', 'differs from what the driver wrote'],
};

function styleState(terminal: Terminal, state: keyof typeof stateTexts): string {
  return terminal.style(...stateTexts[state]);
}

function formatDocument(terminal: Terminal, { claim, generation, podClaimName, requests }: DecodedMetadata): string {
  const lines = [
    `  claim       ${claimName(claim)} (${claim.uid})`,
    ...(podClaimName === undefined ? [] : [`  pod claim   ${podClaimName}`]),
    `  generation  ${generation}`,
  ];
  for (const { name, devices } of requests) {
    lines.push(`  request     ${name}`);
    for (const { driver, pool, name: device, networkData = {}, attributes = {} } of devices) {
      lines.push(`    device ${terminal.style('bold', device)} (pool ${pool}, driver ${driver})`);
      const { interfaceName, hardwareAddress, ips } = networkData;
      if (interfaceName !== undefined) lines.push(`      interface  ${interfaceName}`);
      if (hardwareAddress !== undefined) lines.push(`      MAC        ${hardwareAddress}`);
      if (ips !== undefined) lines.push(`      addresses  ${ips.join(', ') || 'none'}`);
      for (const [id, value] of Object.entries(attributes)) {
        lines.push(`      ${terminal.style('dim', id)} = ${formatAttribute(value)}`);
      }
    }
  }
  return `${lines.join('\n')}\n`;
}

function formatAttribute(attribute: DeviceAttribute): string {
  const [value] = Object.values(attribute);
  return Array.isArray(value) ? value.map(String).join(', ') : String(value);
}
