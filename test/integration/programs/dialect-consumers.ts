/**
 * What programs do that know no metadata file, as shell scripts that know nothing of netdra: how they look for their
 * devices is taken from their sources. Each prints what it has found, a line for each device.
 */
export const dialectConsumers = {
  /** Images of the SR-IOV network device plugin for `intel.com/sriov_dpdk`: addresses, and the files for vfio if any. */
  devicePlugin: `
    for pci in $(echo "$PCIDEVICE_INTEL_COM_SRIOV_DPDK" | tr , ' '); do
      file=$(echo "$PCIDEVICE_INTEL_COM_SRIOV_DPDK_INFO" | jq -r --arg pci "$pci" '.[$pci].vfio["dev-mount"] // empty')
      echo -a "$pci" $file
    done`,
  /** app-netutil reads its environment from /proc; each part of each PCIDEVICE variable with one "=" is an address. */
  appNetutil: `cat /proc/self/environ | tr '\\0' '\\n' | awk -F= '/^PCIDEVICE/ && NF == 2 { print $2 }' | tr , '\\n'`,
  /** Images of dra-driver-sriov: the devices of the container by the beginning of the name, and those of the pod. */
  sriovNetwork: `
    env | sed -n 's/^SRIOVNETWORK_VF_DEVICE_//p' | sort | while IFS== read -r name pci; do
      eval "file=\\\${SRIOVNETWORK_\${name}_VFIO_DEVICE:-}"
      echo "$pci" $file
    done
    echo pod $(echo "$SRIOVNETWORK_PCI_ADDRESSES" | tr , ' ')`,
  /** Multus on the host: the file by resource name and device id. Takes $root, $resource and $id. */
  multus: `
    file="$root/$(echo "$resource" | tr / -)-$id-device.json"
    jq -r '[.type, .version, .pci["pci-address"], .pci["pf-pci-address"]] | join(" ")' "$file"`,
} as const;
