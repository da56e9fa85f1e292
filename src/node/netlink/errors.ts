import { constants } from 'node:os';
import { getSystemErrorMap } from 'node:util';
import { type ErrorDetails, NetdraError } from '../../lib/errors.ts';

export type NetlinkErrorCode =
  /** The kernel answered with an error; `errno` has its name. */
  | 'netlink-refused'
  /** An argument for the kernel is invalid; nothing was sent. */
  | 'netlink-invalid'
  /** The kernel's tables changed during every attempt to list them. */
  | 'netlink-interrupted'
  /** The kernel's answer did not arrive in time, or the netlink socket lost it. */
  | 'netlink-lost'
  /** The netlink socket was closed before the kernel answered. */
  | 'netlink-closed'
  /** The kernel's answer is not a netlink message. */
  | 'netlink-malformed'
  /** The kernel refuses the value of a sysctl, or has no such key. */
  | 'sysctl-refused'
  /** The kernel refuses a packet socket, or a frame. */
  | 'packet-refused'
  /** There is no network namespace at the path any more. */
  | 'netns-missing'
  /** The file at the path is not a network namespace. */
  | 'netns-invalid'
  /** The namespace exists, but the process may not enter it. */
  | 'netns-refused';

export interface NetlinkErrorDetails extends ErrorDetails {
  /** Name of the kernel's error, such as `EEXIST`. */
  errno?: string | undefined;
  /** Attempted operation, as a clause: `create veth pair`. */
  operation?: string | undefined;
  interfaceName?: string | undefined;
  /** Path of the network namespace; absent for the process's own namespace. */
  netns?: string | undefined;
}

/** Any failure with network namespaces and rtnetlink. */
export class NetlinkError extends NetdraError<NetlinkErrorCode, NetlinkErrorDetails> {
  declare readonly errno: string | undefined;
  declare readonly operation: string | undefined;
  declare readonly interfaceName: string | undefined;
  declare readonly netns: string | undefined;
}

/** Cause of a `netlink-lost` whose request the kernel does not get any more. */
export class NotSentError extends Error {}

/** Subject of a request, for its errors. */
export interface RequestSubject {
  operation: string;
  interfaceName?: string | undefined;
  netns?: string | undefined;
  /** Hints by errno. They replace {@link hints} for this request. */
  hints?: Record<string, string>;
}

const hints: Record<string, string> = {
  EPERM: 'give the process CAP_NET_ADMIN, and CAP_SYS_ADMIN to enter namespaces',
  ENODEV: 'the interface is gone or was moved: list the links again',
  EBUSY: 'set the interface down first',
  // libuv's name for EOPNOTSUPP.
  ENOTSUP: 'the kernel or the driver of the interface cannot do this',
  EINVAL: 'the kernel or the driver of the interface does not accept this value',
  EEXIST: 'the kernel already has such an object',
  ENOENT: 'the object is gone: list the links again',
  ENOMEM: 'the node is short of memory',
  ENOBUFS: 'the node is short of network buffers',
};

/** Hint for other errors, which may come from drivers or later kernels. */
export const otherHint = "the node's kernel log may have the reason: dmesg";

const transientErrnos = new Set(['EAGAIN', 'EBUSY', 'EINTR', 'ENOBUFS', 'ENOMEM']);

/** Returns whether the kernel refused a request for a temporary reason, so that the request can be repeated. */
export function isBusy(error: unknown): boolean {
  return error instanceof NetlinkError && error.code === 'netlink-refused' && transientErrnos.has(error.errno ?? '');
}

/** Names and texts of the system's errors, by negative number. */
const systemErrors = getSystemErrorMap();

/** Returns the name of an error. @param errno negative number, as in the message */
export function errnoName(errno: number): string {
  return systemErrors.get(errno)?.[0] ?? `errno ${-errno}`;
}

/**
 * Returns the error for a request that the kernel refused.
 * @param errno negative number, as in the message
 */
export function refused(errno: number, subject: RequestSubject): NetlinkError {
  const name = errnoName(errno);
  const text = systemErrors.get(errno)?.[1] ?? 'refused by the kernel';
  return new NetlinkError('netlink-refused', `cannot ${describe(subject)}: ${text} (${name})`, {
    ...factsOf(subject),
    path: subject.netns,
    errno: name,
    retriable: transientErrnos.has(name),
    hint: subject.hints?.[name] ?? hints[name] ?? otherHint,
  });
}

export function gone(index: number): NetlinkError {
  return refused(-constants.errno.ENODEV, { operation: 'read the state of link', interfaceName: `#${index}` });
}

export function malformed(subject: RequestSubject, cause: unknown, problem = 'cannot be decoded'): NetlinkError {
  const message = `cannot ${describe(subject)}: the answer ${problem}`;
  return new NetlinkError('netlink-malformed', message, { ...factsOf(subject), cause });
}

/** Decodes an answer. @throws NetlinkError `netlink-malformed` if `decode` throws */
export function decodeAnswer<T>(decode: () => T, subject: RequestSubject): T {
  try {
    return decode();
  } catch (cause) {
    throw malformed(subject, cause);
  }
}

/** Returns the details of an error that come from its request. */
export function factsOf({ operation, interfaceName, netns }: RequestSubject): NetlinkErrorDetails {
  return { operation, interfaceName, netns };
}

/** Describes a request: `add address to net1 in /run/netns/x`. */
export function describe({ operation, interfaceName, netns }: RequestSubject): string {
  return [operation, interfaceName, netns && `in ${netns}`].filter((part) => part !== undefined).join(' ');
}
