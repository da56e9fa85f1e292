import { decodeStream, type MetadataDocument } from '../../src/framework/metadata/index.ts';
import type { IpLink } from '../ip-link.ts';
import type { Cluster } from './cluster.ts';

/** Where a container finds its metadata: as in Kubernetes 1.36, and as in the text of KEP-5304. */
export const metadataRoots = {
  v1: '/var/run/kubernetes.io/dra-device-attributes',
  kep: '/var/run/dra-device-attributes',
};

/** The view from inside one container of a pod. */
export class ContainerView {
  readonly #cluster: Cluster;
  readonly #pod: string;
  readonly #container: string;

  constructor(cluster: Cluster, pod: string, container = 'main') {
    this.#cluster = cluster;
    this.#pod = pod;
    this.#container = container;
  }

  async exec(...command: string[]) {
    return await this.#cluster.exec(this.#pod, this.#container, ...command);
  }

  async read(...command: string[]): Promise<string> {
    return await this.#cluster.read(this.#pod, this.#container, ...command);
  }

  /** @param claim with its folder: `resourceclaims/NAME` or `resourceclaimtemplates/POD-CLAIM-NAME` */
  async metadata(claim: string, request: string): Promise<MetadataDocument> {
    return decodeStream(await this.read('cat', this.metadataPath(claim, request)));
  }

  metadataPath(claim: string, request: string): string {
    return `${metadataRoots.v1}/${claim}/${request}/${this.fileName}`;
  }

  kepPath(claim: string, request: string): string {
    return `${metadataRoots.kep}/${claim}/${request}/${this.fileName}`;
  }

  get fileName(): string {
    return `${this.#cluster.target.driver}-metadata.json`;
  }

  /** Paths of all metadata files. */
  async metadataFiles(): Promise<string[]> {
    const found = await this.read('find', '/var/run/', '-name', '*-metadata.json');
    return found.trim().split('\n').filter(Boolean).sort();
  }

  /** The links as reported by iproute2. */
  async links(): Promise<IpLink[]> {
    return JSON.parse(await this.read('ip', '-j', 'addr'));
  }
}
