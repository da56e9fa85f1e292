#!/usr/bin/env python3
"""Devices of a request, from its metadata files: `read_metadata.py CLAIM REQUEST`, or `watch(claim, request)` in a program."""
import glob
import json
import os
import sys
import time

BASE = os.environ.get("METADATA_ROOT", "") + "/var/run/kubernetes.io/dra-device-attributes"
VERSIONS = {"metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"}


def decode(text):
    """Returns the first object of a known version: a file is a stream of objects, one for each version."""
    text = text.lstrip()
    while text:
        document, end = json.JSONDecoder().raw_decode(text)
        if document["apiVersion"] in VERSIONS:
            return document
        text = text[end:].lstrip()
    raise ValueError("no known version in a metadata file")


def watch(claim, request, interval=0.2):
    """Yields the documents of all drivers: when all files have content, and after each change.

    `claim` is the claim's name, or the pod's name for a template claim. `next(watch(...))` reads once.
    """
    before = shown = None
    while True:
        paths = sorted(glob.glob(f"{BASE}/resourceclaim*/{claim}/{request}/*-metadata.json"))
        now = [open(path, "rb").read() for path in paths]
        # Files change in place: two reads that agree are of one version. A blank file has no content yet.
        if now == before != shown and now and all(text.strip() for text in now):
            yield [decode(text.decode()) for text in now]
            shown = now
        before = now
        time.sleep(interval)


def main():
    for documents in watch(*sys.argv[1:3]):
        for document in documents:
            for device in (device for request in document["requests"] for device in request.get("devices", [])):
                pci = device.get("attributes", {}).get("resource.kubernetes.io/pciBusID", {}).get("string", "-")
                network = device.get("networkData", {})
                facts = [pci, network.get("interfaceName", "-"), network.get("hardwareAddress", "-")]
                print(document["metadata"]["generation"], *facts, *network.get("ips", []), flush=True)


if __name__ == "__main__":
    main()
