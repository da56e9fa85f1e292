import type { AllocatedConfiguration } from '../../framework/kube/index.ts';
import type { ClaimIdentity } from '../../framework/metadata/index.ts';
import type { LinkState } from '../../node/netlink/index.ts';
import type { VfSnapshot } from '../../node/sriov/index.ts';
import type { Settings } from '../settings.ts';

/** Version of the lines of an incident's file. */
export const incidentFormat = 1;

/** Why what has happened was written to disk. */
export type IncidentReason =
  | ('claim-refused' | 'claim-not-unprepared' | 'sandbox-refused' | 'container-refused')
  /** A VF or its metadata was taken from a pod whose sandbox lives. */
  | ('vf-taken-back' | 'vf-not-restored' | 'device-hung')
  /** Nothing, as far as the driver knows: a tool has asked. */
  | 'requested';

/** The first line of an incident's file. Texts are escaped as by `printable`. */
export interface IncidentHeader {
  incident: typeof incidentFormat;
  reason: IncidentReason;
  /** What exactly, for people. */
  what: string;
  version: string;
  /** When the driver was started, ISO 8601; times of entries count from here. */
  startedAt: string;
  settings: Partial<Settings>;
  /** Whether containers wait in the start gate. */
  isGated: boolean;
  /** How many entries are no longer there: the oldest ones, but for those that say what existed when the rest begins. */
  dropped: number;
}

/** A claim as it was given to the driver. */
export interface RecordedClaim extends ClaimIdentity {
  podUids: string[];
  /** What it has of this driver. */
  results: { request: string; device: string; adminAccess?: boolean }[];
  /** Configurations of this driver, as they were allocated. */
  config: AllocatedConfiguration[];
}

export interface RecordedSandbox {
  id: string;
  podUid: string;
  podNamespace: string;
  podName: string;
  /** Path of its network namespace; empty: the host's, or none is known. */
  netns: string;
}

export interface RecordedDevice {
  name: string;
  pciAddress: string;
  pfAddress?: string;
  /** Its state before its claim, if that changes it from outside. */
  before?: VfSnapshot;
  /** Of the claim that has it, where no entry says how it was prepared. */
  request?: string;
  config?: object;
}

/** Where a call went that has failed or was slow. */
export type RecordedPort = 'host' | 'pod' | 'networks' | 'card' | 'store' | 'api' | 'cni' | 'files';

/** What has happened. `is` says what the entry is about, and `atMs` when it began, from the start of the driver. */
export type Incident =
  /** From the kubelet; `isOwn`: the driver itself has repeated a call. */
  | { is: 'prepare'; call: number; claims: RecordedClaim[]; isOwn?: true }
  | { is: 'unprepare'; call: number; claims: ClaimIdentity[]; isOwn?: true }
  /** From the runtime. */
  | { is: 'synchronize'; call: number; sandboxes: RecordedSandbox[]; containers: RecordedContainer[] }
  | { is: 'runPodSandbox' | 'stopPodSandbox' | 'removePodSandbox'; call: number; sandbox: RecordedSandbox }
  | { is: 'createContainer'; call: number; sandbox: RecordedSandbox; container: RecordedContainer }
  | { is: 'connected'; runtime: string }
  | { is: 'disconnected' }
  /** The host's links or devices have changed: once for any number of changes between two other entries. */
  | { is: 'host changed' }
  /** The end of a call; `failed`: by UID of a claim, or of the whole call. */
  | { is: 'answer'; call: number; ms: number; failed?: Record<string, string> }
  /** How a port did not do what it usually does: it has failed, or took long. */
  | ({ is: 'failure' | 'slow'; port: RecordedPort; what: string; on: string; ms: number } & RecordedError)
  /** What the driver has done. */
  | { is: 'stored'; claim: ClaimIdentity; podUids: string[]; state: string; devices: RecordedDevice[] }
  | { is: 'placed'; claimUid: string; pciAddress: string; sandboxId: string | undefined; host?: LinkState }
  | { is: 'deleted'; claimUid: string }
  | { is: 'unrestored'; device: RecordedDevice; why: string }
  | { is: 'moved'; from: string; to: string; index: number }
  | { is: 'file'; what: string; claim: ClaimIdentity; on: string }
  | { is: 'hung'; devices: string[] }
  /** Entries between those before it, which say what existed, and those after it were dropped. */
  | { is: 'gap' };

export type IncidentEntry = Incident & { atMs: number };

export interface RecordedContainer {
  id: string;
  sandboxId: string;
  name: string;
  state: string;
  /** How many CDI devices it has, of whatever driver. */
  cdiDevices: number;
  cpus: string;
  shares: number;
}

export interface RecordedError {
  /** Ours, such as `netlink-refused`. */
  code?: string;
  errno?: string;
  httpStatus?: number;
  text?: string;
}
