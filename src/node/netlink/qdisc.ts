import { getU32, putU32 } from 'netlink';
import { type Attribute, Attributes, decodeString, encodeAttributes, encodeString } from './attributes.ts';
import { assertIndex } from './checks.ts';

/** Parents of qdiscs: `TC_H_ROOT` and `TC_H_INGRESS` of Linux `pkt_sched.h`. `clsact` uses the latter, too. */
const parents = { root: 0xffffffff, ingress: 0xfffffff1 } as const;
/** Handle of the qdisc at `ingress`. The kernel chooses the handle of the root qdisc. */
const ingressHandle = 0xffff0000;
/** `TCA_KIND` of Linux `rtnetlink.h`. */
const kindType = 1;
/** Size of `struct tcmsg`, in bytes. */
const headerBytes = 20;
const [indexOffset, handleOffset, parentOffset] = [4, 8, 12];

/** Place where a queueing discipline (qdisc) is attached to a link. */
export type QdiscPlace = keyof typeof parents;
export const qdiscPlaces = Object.keys(parents) as QdiscPlace[];

/**
 * Encodes the payload of a qdisc message. @param kind kind of the qdisc to attach; absent: the message is about the present
 * one
 */
export function encodeQdisc(index: number, place: QdiscPlace, kind?: string): Uint8Array[] {
  assertIndex(index);
  const header = Buffer.alloc(headerBytes);
  putU32(index).copy(header, indexOffset);
  if (place === 'ingress') putU32(ingressHandle).copy(header, handleOffset);
  putU32(parents[place]).copy(header, parentOffset);
  const attributes: Attribute[] = kind === undefined ? [] : [{ type: kindType, value: encodeString(kind) }];
  return [header, ...encodeAttributes(attributes)];
}

/** Returns the kind of a qdisc, such as `fq`; `undefined` for the kernel's default qdisc, which has no handle. */
export function decodeQdisc(message: Buffer): string | undefined {
  if (getU32(message.subarray(handleOffset, handleOffset + 4)) === 0) return undefined;
  return decodeString(new Attributes(message.subarray(headerBytes)).get(kindType));
}
