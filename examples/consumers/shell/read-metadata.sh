#!/bin/sh
# Prints the devices of a request, and prints them again after each change: read-metadata.sh CLAIM REQUEST. Needs jq 1.6.
set -eu
base=${METADATA_ROOT:-}/var/run/kubernetes.io/dra-device-attributes

# A file is a stream of objects, one for each version: takes the first known one.
program='
  map(select(.apiVersion | IN("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")))[0]
  | . // error("no known version in a metadata file")
  | .metadata.generation as $generation | .requests[].devices // [] | .[]
  | [$generation, .attributes["resource.kubernetes.io/pciBusID"].string, .networkData.interfaceName,
     .networkData.hardwareAddress] + .networkData.ips | map(. // "-") | join(" ")'

# CLAIM is the claim's name, or the pod's name for a template claim; the claim's name goes first. Each driver has a file.
# Exit code 9: a file is missing or blank.
devices() {
  folder=$base/resourceclaims/$1/$2
  [ -e "$folder" ] || folder=$base/resourceclaimtemplates/$1/$2
  for file in "$folder"/*-metadata.json; do
    [ -e "$file" ] && [ -n "$(tr -d '[:space:]' <"$file")" ] || return 9
    jq --raw-output --slurp "$program" "$file" || return
  done
}

before='' shown='9 '
while true; do
  code=0
  now=$(devices "$1" "$2" 2>&1) || code=$?
  [ "$code" -ne 9 ] || now=''
  state="$code $now"
  # Files change in place: two reads that agree are of one version.
  if [ "$state" = "$before" ] && [ "$state" != "$shown" ]; then
    case $code in
      0) [ -z "$now" ] || echo "$now" ;;
      9) echo "no content" ;;
      *) echo "$now" >&2 && exit 1 ;;
    esac
    shown=$state
  fi
  before=$state
  sleep 0.2
done
