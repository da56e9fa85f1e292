/** A link as `ip` reports it, against which the metadata is checked. */
export interface IpLink {
  ifname: string;
  address: string;
  mtu: number;
  addr_info: { family: string; local: string; prefixlen: number; scope: string }[];
}

/** The expected metadata of a link: global addresses, else link-local ones. @throws Error if there is no link */
export function expectedNetworkData(link: IpLink | undefined) {
  if (link === undefined) throw new Error('no such link in the pod');
  const cidrs = (scope: string) =>
    link.addr_info
      .filter((each) => each.scope === scope)
      .map(({ local, prefixlen }) => `${local}/${prefixlen}`)
      .sort();
  const ips = cidrs('global').length > 0 ? cidrs('global') : cidrs('link');
  return { interfaceName: link.ifname, hardwareAddress: link.address, ips };
}
