import { join } from 'node:path';
import { KeyedMutex } from '../keyed-mutex.ts';
import { createFile, overwriteFile, readFileIfThere, remove, renameIfThere } from './atomic-file.ts';
import { CdiSpecs } from './cdi.ts';
import { type ClaimRecord, formatClaimRecord, parseClaimRecord } from './claim-record.ts';
import { decodeStream } from './codec.ts';
import { baseRequest, type ClaimIdentity, type DeviceMetadata, type MetadataDocument } from './document.ts';
import { MetadataError } from './errors.ts';
import { type Layout, placeOf } from './layout.ts';
import { pathPart } from './paths.ts';

export interface ClaimMetadataOptions {
  driver: string;
  /** The driver's directory below the kubelet's `plugins`: files go to `dra-device-metadata/` in it. */
  dataDir: string;
  cdiDir: string;
  layouts: readonly Layout[];
}

interface LayoutFile {
  layout: Layout;
  path: string;
  /** Absent while containers find no file. */
  text?: string;
  /** What the file says, or said before it was withdrawn. */
  document?: MetadataDocument;
}

/** What is known of a request when its claim is prepared: its devices, or that they follow in an update. */
export type PreparedContent = DeviceMetadata[] | 'deferred';

/**
 * The metadata files and CDI specs of the claims of one driver. Rules, all kept across restarts:
 * a deferred request has no file before generation 1, so no container starts without it; generation never goes back for
 * the same claim UID; files that a container may have mounted are changed in place; another UID under the same name
 * starts from nothing. Calls for one claim name run in the order they came.
 */
export class ClaimMetadata {
  readonly #driver: string;
  readonly #root: string;
  readonly #layouts: readonly Layout[];
  readonly #cdi: CdiSpecs;
  readonly #mutex = new KeyedMutex();

  constructor(options: ClaimMetadataOptions) {
    this.#driver = options.driver;
    this.#root = join(options.dataDir, 'dra-device-metadata');
    this.#layouts = options.layouts;
    this.#cdi = new CdiSpecs({ dir: options.cdiDir, driver: options.driver, class: 'metadata' });
  }

  /**
   * Lays down what the containers of a prepared claim will mount.
   * @param contents by base request name; a request without an entry is deferred
   * @returns the CDI device id of each request, by base name
   */
  async prepare(record: ClaimRecord, contents: ReadonlyMap<string, PreparedContent>): Promise<Map<string, string>> {
    return await this.#mutex.run(claimKey(record.claim), async () => {
      const previous = await this.#readRecord(record.claim);
      if (previous !== undefined && previous.claim.uid !== record.claim.uid) await this.#removeFiles(previous.claim);
      await createFile(this.#recordPath(record.claim), formatClaimRecord(record));
      const ids = new Map<string, string>();
      for (const [request, { name }] of Object.entries(record.requests)) {
        const content = contents.get(request) ?? 'deferred';
        if (content !== 'deferred') await this.#writeContent(documentOf(record, name, content));
        await this.#cdi.write(record.claim.uid, request, { mounts: this.#mounts(record, request) });
        ids.set(request, this.#cdi.deviceId(record.claim.uid, request));
      }
      return ids;
    });
  }

  /**
   * Writes what a request's devices are like now; the whole list replaces the one before. Nothing is written when it
   * says what the file says already.
   * @returns the generation that the file has afterwards
   * @throws MetadataError `metadata-not-prepared` if claim UID, request or devices are not what was prepared
   */
  async update(claim: ClaimIdentity, request: string, devices: DeviceMetadata[]): Promise<number> {
    return await this.#mutex.run(claimKey(claim), async () => {
      const record = await this.#readRecord(claim);
      const prepared = checkOwnership(record, claim, request, devices, this.#driver);
      return await this.#writeContent(documentOf(prepared.record, prepared.name, devices));
    });
  }

  /**
   * Takes the files of a claim away from containers that do not have them mounted yet: none of them starts before the
   * next update. Generations are remembered. For a pod that gets a new sandbox: what the files say is over.
   */
  async withdraw(claim: ClaimIdentity): Promise<void> {
    await this.#mutex.run(claimKey(claim), async () => {
      const record = await this.#readRecord(claim);
      if (record?.claim.uid !== claim.uid) return;
      for (const request of Object.keys(record.requests)) {
        for (const layout of this.#layouts) {
          const path = this.#filePath(claim, request, layout);
          await renameIfThere(path, withdrawnPath(path));
        }
      }
    });
  }

  /** Removes what `prepare` and `update` made. A claim that is not known, or known under a newer UID, is fine. */
  async unprepare(claim: ClaimIdentity): Promise<void> {
    await this.#mutex.run(claimKey(claim), async () => {
      const record = await this.#readRecordForRemoval(claim);
      if (record === undefined || record.claim.uid === claim.uid) await remove(this.#claimDir(claim));
      await this.#cdi.removeClaim(claim.uid);
    });
  }

  /** The document as it stands in the files, or `undefined` while there is none. */
  async read(claim: ClaimIdentity, request: string): Promise<MetadataDocument | undefined> {
    const files = await this.#files(claim, baseRequest(request));
    return files.find(({ text }) => text !== undefined)?.document;
  }

  async #writeContent(document: MetadataDocument): Promise<number> {
    const place = placeOf(document, this.#driver);
    const files = await this.#files(document.claim, place.request);
    const generation = Math.max(0, ...files.map(({ document }) => document?.generation ?? 0));
    const current = { ...document, generation };
    if (files.every(({ layout, text }) => text?.trimEnd() === layout.encode(current).trimEnd())) return generation;
    const next = { ...document, generation: generation + 1 };
    for (const { layout, path } of files) {
      const text = layout.encode(next);
      if (!(await overwriteFile(path, text))) await createFile(path, text);
      await remove(withdrawnPath(path));
    }
    return next.generation;
  }

  /** The files of a request, one for each layout, and what they say. */
  async #files(claim: ClaimIdentity, request: string): Promise<LayoutFile[]> {
    const files: LayoutFile[] = [];
    for (const layout of this.#layouts) {
      const path = this.#filePath(claim, request, layout);
      const text = await readFileIfThere(path);
      const last = text ?? (await readFileIfThere(withdrawnPath(path)));
      // A power loss can leave a file without content. No container of that boot is left, so it counts as not there.
      if (last === undefined || /^[\s\0]*$/.test(last)) {
        files.push({ layout, path });
        continue;
      }
      try {
        files.push({ layout, path, document: decodeStream(last), ...(text === undefined ? {} : { text }) });
      } catch (cause) {
        throw new MetadataError('metadata-malformed', `metadata file ${path} cannot be read`, { cause, path });
      }
    }
    return files;
  }

  #mounts(record: ClaimRecord, request: string) {
    const { claim, podClaimName } = record;
    const place = { claim, request, driver: this.#driver, ...(podClaimName === undefined ? {} : { podClaimName }) };
    return this.#layouts.flatMap((layout) =>
      layout.containerPaths(place).map((containerPath) => ({
        hostPath: this.#filePath(claim, request, layout),
        containerPath,
        options: ['ro', 'bind'],
      })),
    );
  }

  async #readRecord(claim: ClaimIdentity): Promise<ClaimRecord | undefined> {
    const path = this.#recordPath(claim);
    const text = await readFileIfThere(path);
    return text === undefined ? undefined : parseClaimRecord(text, path);
  }

  /** For removal a broken record must not stand in the way: what cannot be told apart any more goes. */
  async #readRecordForRemoval(claim: ClaimIdentity): Promise<ClaimRecord | undefined> {
    try {
      return await this.#readRecord(claim);
    } catch (error) {
      if (error instanceof MetadataError && error.code === 'metadata-malformed') return undefined;
      throw error;
    }
  }

  async #removeFiles(claim: ClaimIdentity): Promise<void> {
    await remove(this.#claimDir(claim));
    await this.#cdi.removeClaim(claim.uid);
  }

  #claimDir(claim: ClaimIdentity): string {
    return join(this.#root, claimKey(claim));
  }

  #recordPath(claim: ClaimIdentity): string {
    return join(this.#claimDir(claim), 'claim.json');
  }

  #filePath(claim: ClaimIdentity, request: string, layout: Layout): string {
    return join(this.#claimDir(claim), pathPart(request, 'request'), layout.fileName);
  }
}

/** Beside the file, under a name that nothing mounts. */
function withdrawnPath(path: string): string {
  return `${path}.withdrawn`;
}

function claimKey(claim: ClaimIdentity): string {
  return `${pathPart(claim.namespace, 'claim namespace')}_${pathPart(claim.name, 'claim name')}`;
}

/** The document with generation 0: the writer counts. */
function documentOf(record: ClaimRecord, request: string, devices: DeviceMetadata[]): MetadataDocument {
  const { claim, podClaimName } = record;
  return { claim, generation: 0, request, devices, ...(podClaimName === undefined ? {} : { podClaimName }) };
}

function checkOwnership(
  record: ClaimRecord | undefined,
  claim: ClaimIdentity,
  request: string,
  devices: DeviceMetadata[],
  driver: string,
): { record: ClaimRecord; name: string } {
  const subject = `${claim.namespace}/${claim.name}`;
  const refuse = (reason: string) =>
    new MetadataError('metadata-not-prepared', `cannot update metadata of claim ${subject}: ${reason}`, {
      claim: subject,
    });
  if (record === undefined) throw refuse('it is not prepared');
  if (record.claim.uid !== claim.uid) throw refuse(`prepared with UID ${record.claim.uid}, not ${claim.uid}`);
  const prepared = record.requests[baseRequest(request)];
  if (prepared === undefined) throw refuse(`request ${request} is not prepared`);
  for (const device of devices) {
    const owned = prepared.devices.some(({ pool, name }) => pool === device.pool && name === device.name);
    if (device.driver !== driver || !owned) {
      throw refuse(`device ${device.driver}/${device.pool}/${device.name} is not prepared for request ${request}`);
    }
  }
  return { record, name: prepared.name };
}
