#!/usr/bin/env python3
"""Devices of a request, from its metadata files: `read_metadata.py CLAIM REQUEST`, or `watch(claim, request)` in a program."""
import glob
import json
import os
import sys
import time

BASE = os.environ.get("METADATA_ROOT", "") + "/var/run/kubernetes.io/dra-device-attributes"
KINDS = ["resourceclaims", "resourceclaimtemplates"]
VERSIONS = {"metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"}


def decode(text):
    """Returns the first object of a known version: a file is a stream of objects, one for each version."""
    text = text.lstrip()
    while text:
        document, end = json.JSONDecoder().raw_decode(text)
        if document.get("apiVersion") in VERSIONS:
            return document
        text = text[end:].lstrip()
    raise ValueError("no known version in a metadata file")


def watch(claim, request, interval=0.2):
    """Yields the documents of all drivers: when all files have content, and after each change. No documents: a device has left.

    `claim` is the claim's name, or the pod's name for a template claim; the claim's name goes first. `next(watch(...))` reads once.
    """
    before = shown = []
    while True:
        found = (glob.glob(f"{BASE}/{kind}/{claim}/{request}/*-metadata.json") for kind in KINDS)
        now = [open(path, "rb").read() for path in sorted(next(filter(None, found), []))]
        # A blank file has no content: it is not complete yet, or its device has left the pod.
        now = now if all(text.strip() for text in now) else []
        # Files change in place: two reads that agree are of one version.
        if now == before != shown:
            yield [decode(text.decode()) for text in now]
            shown = now
        before = now
        time.sleep(interval)


def main():
    for documents in watch(*sys.argv[1:3]):
        if not documents:
            print("no content", flush=True)
        for document in documents:
            for device in (device for request in document["requests"] for device in request.get("devices", [])):
                pci = device.get("attributes", {}).get("resource.kubernetes.io/pciBusID", {}).get("string", "-")
                network = device.get("networkData", {})
                facts = [pci, network.get("interfaceName", "-"), network.get("hardwareAddress", "-")]
                print(document["metadata"]["generation"], *facts, *network.get("ips", []), flush=True)


if __name__ == "__main__":
    main()
