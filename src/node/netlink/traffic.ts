import { getU32 } from 'netlink';
import { Attributes, listAttributes } from './attributes.ts';
import { infoListType } from './vf-settings.ts';

/** Counters since the link or the VF was created, from its own point of view: traffic that arrives at it counts as received. */
export interface TrafficCounters {
  rxBytes: number;
  txBytes: number;
  rxPackets: number;
  txPackets: number;
  rxDropped: number;
  txDropped: number;
}

/** Counters of an interface. In contrast, PFs count no errors for their VFs. */
export interface LinkTraffic extends TrafficCounters {
  rxErrors: number;
  txErrors: number;
}

/** Counters of a PF for one of its VFs. A PF whose kernel driver does not count reports zeros. */
export interface VfTraffic extends TrafficCounters {
  vfIndex: number;
}

const linkHeaderBytes = 16;
/** `IFLA_STATS64`, and the offsets of the counters in `struct rtnl_link_stats64` of Linux `if_link.h`. */
const stats64Type = 23;
const packetsAndBytes = { rxPackets: 0, txPackets: 1, rxBytes: 2, txBytes: 3 };
const linkPlaces = { ...packetsAndBytes, rxErrors: 4, txErrors: 5, rxDropped: 6, txDropped: 7 };
/** `IFLA_VF_STATS`, and `IFLA_VF_STATS_*` within it, of Linux `if_link.h`. */
const vfStatsType = 8;
const vfTypes = { ...packetsAndBytes, rxDropped: 7, txDropped: 8 };
const counterBytes = 8;

/** Returns the counters in an interface's link message; `undefined` if it has none. */
export function decodeLinkTraffic(message: Buffer): LinkTraffic | undefined {
  const stats = new Attributes(message.subarray(linkHeaderBytes)).get(stats64Type);
  if (stats === undefined) return undefined;
  return readCounters(linkPlaces, (place) => stats.subarray(counterBytes * place, counterBytes * (place + 1)));
}

/** Returns the counters in a PF's link message, for the VFs that it contains. */
export function decodeVfTraffic(message: Buffer): VfTraffic[] {
  const list = new Attributes(message.subarray(linkHeaderBytes)).get(infoListType);
  if (list === undefined) return [];
  return listAttributes(list).flatMap(({ data }) => {
    const stats = new Attributes(data).get(vfStatsType);
    // Every value except the counters is a struct that begins with the number of the VF; the first one is the MAC.
    const first = listAttributes(data)[0]?.data;
    if (stats === undefined || first === undefined) return [];
    const attributes = new Attributes(stats);
    const counters = readCounters(vfTypes, (type) => attributes.get(type));
    return counters === undefined ? [] : [{ vfIndex: getU32(first.subarray(0, 4)), ...counters }];
  });
}

/** Reads counters. @returns `undefined` if any is missing: a kernel that sends counters sends all of them */
function readCounters<Name extends string>(
  places: Record<Name, number>,
  bytesAt: (place: number) => Buffer | undefined,
): Record<Name, number> | undefined {
  const counters: Partial<Record<Name, number>> = {};
  for (const name in places) {
    const bytes = bytesAt(places[name]);
    if (bytes?.length !== counterBytes) return undefined;
    counters[name] = Number(bytes.readBigUInt64LE());
  }
  return counters as Record<Name, number>;
}
