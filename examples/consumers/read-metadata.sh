#!/bin/sh
# Prints the first device of a request, by jq, from the layout `kep`: read-metadata.sh CLAIM REQUEST [DRIVER].
# Uses the paths of example 2 in KEP-5304, and the field names of the KEP's type.
set -eu
root=${METADATA_ROOT:-} # for tests
file=$root/var/run/dra-device-attributes/$1/$2/${3:-sriov.netdra.dev}-metadata.json
metadata=$(cat "$file")

pci=$(echo "$metadata" | jq -r '.requests[0].devices[0].attributes["resource.kubernetes.io/pciBusID"].string')
interface=$(echo "$metadata" | jq -r '.requests[0].devices[0].networkData.interfaceName')
mac=$(echo "$metadata" | jq -r '.requests[0].devices[0].networkData.hardwareAddress')
ip=$(echo "$metadata" | jq -r '.requests[0].devices[0].networkData.ips[0]')
echo "$pci $interface $mac $ip"
