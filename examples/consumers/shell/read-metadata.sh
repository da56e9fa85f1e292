#!/bin/sh
# Prints the devices of a request, and prints them again after each change: read-metadata.sh CLAIM REQUEST. Needs jq 1.6.
set -eu
base=${METADATA_ROOT:-}/var/run/kubernetes.io/dra-device-attributes

# A file is a stream of objects, one for each version: takes the first known one. Exit code 4: no content yet; 5: unknown.
program='
  if length == 0 then "" | halt_error(4) else . end
  | map(select(.apiVersion | IN("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")))[0]
  | . // error("no known version in a metadata file")
  | .metadata.generation as $generation | .requests[].devices // [] | .[]
  | [$generation, .attributes["resource.kubernetes.io/pciBusID"].string, .networkData.interfaceName,
     .networkData.hardwareAddress] + .networkData.ips | map(. // "-") | join(" ")'

# CLAIM is the claim's name, or the pod's name for a template claim. Each driver has a file.
devices() {
  for file in "$base"/resourceclaim*/"$1/$2"/*-metadata.json; do
    jq --raw-output --slurp "$program" "$file" || return
  done
}

before='' shown=''
while true; do
  code=0
  now=$(devices "$1" "$2" 2>&1) || code=$?
  if [ "$code" -eq 5 ]; then
    echo "$now" >&2
    exit 1
  fi
  # Files change in place: two reads that agree are of one version.
  if [ "$code" -eq 0 ] && [ "$now" = "$before" ] && [ "$now" != "$shown" ]; then
    [ -z "$now" ] || echo "$now"
    shown=$now
  fi
  before=$now
  sleep 0.2
done
