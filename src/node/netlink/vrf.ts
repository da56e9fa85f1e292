import { getU32, putU32 } from 'netlink';
import { type Attribute, Attributes } from './attributes.ts';

/** `IFLA_VRF_TABLE` of Linux `if_link.h`. */
const tableAttribute = 1;

/** Encodes `IFLA_INFO_DATA` of a new VRF. @param table routing table of its members */
export function encodeVrf(table: number): Attribute[] {
  return [{ type: tableAttribute, value: putU32(table) }];
}

/** Returns the routing table of a VRF. @param data `IFLA_INFO_DATA` */
export function decodeVrfTable(data: Buffer): number | undefined {
  const table = new Attributes(data).get(tableAttribute);
  return table && getU32(table);
}
