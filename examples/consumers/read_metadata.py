#!/usr/bin/env python3
"""What this container's devices are: `read_metadata.py CLAIM REQUEST`, or `read_devices(claim, request)` from a program."""
import glob
import json
import os
import sys
import time

ROOT = os.environ.get("METADATA_ROOT", "")  # for tests
FOLDERS = [
    "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/{claim}/{request}",
    "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/{claim}/{request}",
    "/var/run/dra-device-attributes/{claim}/{request}",
]
VERSIONS = {f"metadata.resource.k8s.io/{version}" for version in ("v1beta1", "v1alpha1")}


def read_stable(path):
    """The file is updated in place: two reads that agree are of one version."""
    before = None
    while True:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text == before:
            return text
        before = text
        time.sleep(0.0001)


def decode(text, path):
    """The file is a stream of objects, one for each version: the first that is known counts."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        document, at = decoder.raw_decode(text, at)
        if document["apiVersion"] in VERSIONS and document["kind"] == "DeviceMetadata":
            return document
    raise ValueError(f"{path}: no version that is known here")


def read_devices(claim, request):
    """All devices of a request. `claim` is the claim's name, or the pod's name for one that is made from a template."""
    for folder in FOLDERS:
        # One file for each driver that serves the request.
        paths = sorted(glob.glob(ROOT + folder.format(claim=claim, request=request) + "/*-metadata.json"))
        documents = [decode(read_stable(path), path) for path in paths]
        if documents:
            return [device for document in documents for each in document["requests"] for device in each["devices"]]
    raise FileNotFoundError(f"no metadata of {claim}/{request}")


if __name__ == "__main__":
    for device in read_devices(sys.argv[1], sys.argv[2]):
        network = device.get("networkData", {})
        pci = device["attributes"]["resource.kubernetes.io/pciBusID"]["string"]
        print(pci, network.get("interfaceName", "-"), network.get("hardwareAddress", "-"), *network.get("ips", []))
