import { putU32 } from 'netlink';
import { type Attribute, encodeAttributes } from './attributes.ts';

/** `IFLA_VF_*`, `IFLA_VFINFO_LIST` and their contents: Linux `if_link.h`. */
const vfInfoListType = 22;
const vfInfoType = 1;
const vlanInfoType = 1;
const VfAttribute = { mac: 1, spoofCheck: 4, linkState: 5, rate: 6, trust: 9, vlanList: 12 } as const;
/** `MAX_ADDR_LEN`. */
const maxAddressBytes = 32;
const etherTypes = { '802.1q': 0x8100, '802.1ad': 0x88a8 } as const;
const linkStates = { auto: 0, enable: 1, disable: 2 } as const;

/** Settings that a PF can make for one of its VFs; absent ones stay unchanged. */
export interface VfChange {
  /** The administrative address. All zeros lets the VF choose again. */
  hardwareAddress?: string;
  /** `id` 0 removes the tag. */
  vlan?: { id: number; priority?: number; protocol?: keyof typeof etherTypes };
  spoofCheck?: boolean;
  trust?: boolean;
  linkState?: keyof typeof linkStates;
  /** Both at once: the kernel has one attribute for them. 0 is no limit. */
  rate?: { minMbps: number; maxMbps: number };
}

/** One property as the attributes of a link message. */
export interface EncodedVfProperty {
  property: keyof VfChange;
  attributes: Attribute[];
}

/** Encodes each property separately: if a driver answers EOPNOTSUPP for one, the others must not be lost. */
export function encodeVfChange(vfIndex: number, change: VfChange): EncodedVfProperty[] {
  const words = (...values: number[]) => Buffer.concat([vfIndex, ...values].map((value) => putU32(value)));
  const encoders: { [K in keyof VfChange]-?: (value: NonNullable<VfChange[K]>) => Attribute } = {
    hardwareAddress: (value) => ({ type: VfAttribute.mac, value: Buffer.concat([words(), encodeAddress(value)]) }),
    vlan: ({ id, priority = 0, protocol = '802.1q' }) => {
      const etherType = Buffer.alloc(4);
      etherType.writeUInt16BE(etherTypes[protocol]);
      const info = { type: vlanInfoType, value: Buffer.concat([words(id, priority), etherType]) };
      return { type: VfAttribute.vlanList, value: [info] };
    },
    spoofCheck: (value) => ({ type: VfAttribute.spoofCheck, value: words(Number(value)) }),
    trust: (value) => ({ type: VfAttribute.trust, value: words(Number(value)) }),
    linkState: (value) => ({ type: VfAttribute.linkState, value: words(linkStates[value]) }),
    rate: ({ minMbps, maxMbps }) => ({ type: VfAttribute.rate, value: words(minMbps, maxMbps) }),
  };
  return (Object.keys(encoders) as (keyof VfChange)[]).flatMap((property) => {
    const value = change[property];
    if (value === undefined) return [];
    const attribute = (encoders[property] as (value: unknown) => Attribute)(value);
    return [{ property, attributes: [{ type: vfInfoListType, value: [{ type: vfInfoType, value: [attribute] }] }] }];
  });
}

/** For tests: the bytes of one property. */
export function encodeVfProperty({ attributes }: EncodedVfProperty): Buffer {
  return Buffer.concat(encodeAttributes(attributes));
}

function encodeAddress(hardwareAddress: string): Buffer {
  const octets = hardwareAddress.split(':').map((octet) => Number.parseInt(octet, 16));
  return Buffer.concat([Buffer.from(octets)], maxAddressBytes);
}
