import { defined } from '../../../lib/defined.ts';
import type { ClaimIdentity } from '../document/document.ts';
import { MetadataError } from '../errors.ts';
import { type HostFile, hostPath, listDir, readSmallFile } from '../files/host-file.ts';
import { claimDirectory, metadataDirName } from '../layouts/layout-v1.ts';

/** A sandbox whose containers wait at a start gate, as `netdra-gate` announces it. */
interface Announcement {
  /** The runtime's ID of the sandbox. */
  sandboxId: string;
  podUid: string;
  podNamespace: string;
  podName: string;
  /** Path of the sandbox's network namespace on the host; absent if the program did not find it. */
  netnsPath?: string;
}

/** An announcement, with the claim at whose gate the sandbox waits. */
export interface WaitingSandbox extends Announcement {
  claim: ClaimIdentity;
}

/** Name of an announcement's file: ID of the sandbox, and PID of the program, of which several may wait in one sandbox. */
const fileName = /^waiting\.(?<sandboxId>.+)\.\d+$/;
/** Limits above the longest announcement and the highest number of programs that can wait for one claim. */
const limits = { bytes: 4096, files: 64 };
/**
 * Age of an announcement that still counts, ms. The program rewrites its file every second; only a killed program leaves an
 * older file.
 */
const freshMs = 5_000;

/** Pattern of the pod's name and namespace, with which the pod is looked up in the API server. */
const podPart = '[0-9A-Za-z][\\w.-]{0,252}';

/** Format of the files that `programs/src/announcement.c` writes. */
const format = new RegExp(
  [
    '^netdra-waiting 1\n',
    `podUid (?<podUid>${podPart})\n`,
    `podNamespace (?<podNamespace>${podPart})\n`,
    `podName (?<podName>${podPart})\n`,
    '(?:netns (?<netnsPath>/(?:var/)?run/netns/(?!\\.{1,2}\n)[\\w.-]{1,255})\n)?$',
  ].join(''),
);

/** Returns whether a container of the sandbox has announced that it waits for the claim. @throws MetadataError `metadata-io` */
export function isAwaited(dataDir: string, claim: ClaimIdentity, sandboxId: string): boolean {
  const names = listDir(hostPath(claimDirectory(dataDir, claim)));
  return names.some((name) => fileName.exec(name)?.groups?.sandboxId === sandboxId);
}

/** Parses an announcement. @returns `undefined` for any text that the program does not write */
export function parseWaitingSandbox(sandboxId: string, text: string): Announcement | undefined {
  const { podUid, podNamespace, podName, netnsPath } = format.exec(text)?.groups ?? {};
  if (!/^[\w.-]{1,128}$/.test(sandboxId)) return undefined;
  if (podUid === undefined || podNamespace === undefined || podName === undefined) return undefined;
  return { sandboxId, podUid, podNamespace, podName, ...defined({ netnsPath }) };
}

/**
 * Reads the announcements in a claim's directory whose programs are still waiting.
 * @param dir name of the claim's directory
 * @param now time on the clock of the file system
 * @returns `problems` has an error for each unreadable file
 * @throws MetadataError `metadata-io` if the directory cannot be listed
 */
export function readAnnouncements(
  dataDir: string,
  dir: string,
  now: Date,
): { announcements: Announcement[]; problems: MetadataError[] } {
  const claimDir: HostFile = { base: dataDir, parts: [metadataDirName, dir] };
  const names = listDir(hostPath(claimDir))
    .filter((name) => fileName.test(name))
    .sort();
  const announcements: Announcement[] = [];
  const problems: MetadataError[] = [];
  for (const name of names.slice(0, limits.files)) {
    try {
      const file = { ...claimDir, parts: [...claimDir.parts, name] };
      const announcement = readAnnouncement(file, fileName.exec(name)?.groups?.sandboxId ?? '', now);
      if (announcement !== undefined) announcements.push(announcement);
    } catch (error) {
      if (!(error instanceof MetadataError)) throw error;
      problems.push(error);
    }
  }
  return { announcements, problems };
}

/** Reads one announcement. @returns `undefined` if its program no longer waits */
function readAnnouncement(file: HostFile, sandboxId: string, now: Date): Announcement | undefined {
  const found = readSmallFile(file, limits.bytes);
  if (found === undefined || Math.abs(now.getTime() - found.modifiedMs) > freshMs) return undefined;
  const announcement = parseWaitingSandbox(sandboxId, found.text);
  if (announcement !== undefined) return announcement;
  const path = hostPath(file);
  throw new MetadataError('metadata-malformed', `announcement ${path} of a waiting container cannot be understood`, {
    path,
    hint: 'another version of netdra-gate has written the file, or it is damaged: the container waits until the runtime is connected',
  });
}
