/** What `ip` says of a link: the judge of what the metadata says. */
export interface IpLink {
  ifname: string;
  address: string;
  mtu: number;
  addr_info: { family: string; local: string; prefixlen: number; scope: string }[];
}

/** What the metadata must say of a link: global addresses, else link-local ones. @throws Error if there is no link */
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
