#!/usr/bin/env python3
"""What KubeVirt's virt-launcher does with the file, for each DRA network of a VMI: `virt_launcher.py VMI.json`.

It takes the PCI address from layout v1 and makes libvirt's XML of it. It reads once, when the domain is made, as uid 107.
"""
import glob
import json
import os
import re
import sys

BASE = os.environ.get("METADATA_ROOT", "") + "/var/run/kubernetes.io/dra-device-attributes"
VERSION = "metadata.resource.k8s.io/v1alpha1"  # all that it knows
PCI = re.compile(r"([\da-fA-F]{4}):([\da-fA-F]{2}):([\da-fA-F]{2})\.([0-7])")


def read_document(path):
    """Versions that are not known are passed over, but each object has to have one."""
    text, at, unknown = open(path, encoding="utf-8").read().rstrip(), 0, []
    while at < len(text):
        document, at = json.JSONDecoder().raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        if not document.get("apiVersion"):
            sys.exit(f"{path}: an object without apiVersion")
        if document["apiVersion"] == VERSION:
            return document
        unknown.append(document["apiVersion"])
    sys.exit(f"{path}: no compatible version ({', '.join(unknown) or 'no objects'})")


def pci_address(claims, claim_name, request_name):
    claim = next((each for each in claims if each["name"] == claim_name), None)
    if claim is None:
        sys.exit(f"the VMI has no claim {claim_name}")
    by_name = "resourceClaimName" in claim
    folder = f"resourceclaims/{claim['resourceClaimName']}" if by_name else f"resourceclaimtemplates/{claim_name}"
    paths = glob.glob(f"{BASE}/{folder}/{request_name}/*-metadata.json")
    if len(paths) != 1:
        sys.exit(f"{claim_name}/{request_name}: {len(paths)} metadata files, exactly one driver is supported")
    request = next((each for each in read_document(paths[0])["requests"] if each["name"] == request_name), {})
    devices = request.get("devices", [])
    if len(devices) != 1:
        sys.exit(f"{claim_name}/{request_name}: {len(devices)} devices, exactly one is supported")
    return devices[0]["attributes"]["resource.kubernetes.io/pciBusID"]["string"]


spec = json.load(open(sys.argv[1], encoding="utf-8"))["spec"]
for network in spec["networks"]:
    if "resourceClaim" in network:
        source = network["resourceClaim"]
        address = pci_address(spec["resourceClaims"], source["claimName"], source["requestName"])
        domain, bus, slot, function = PCI.fullmatch(address).groups()
        print(f"<hostdev type='pci' managed='no'><source><address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}'"
              f" function='0x{function}'/></source><alias name='ua-sriov-{network['name']}'/></hostdev>")
