// Command metadata prints what this container's devices are: metadata CLAIM REQUEST.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
)

// Document describes the devices of a request. Attributes are unions; this program reads strings.
type Document struct {
	APIVersion string
	Requests   []struct {
		Devices []struct {
			Attributes  map[string]struct{ String string }
			NetworkData struct {
				InterfaceName, HardwareAddress string
				IPs                            []string
			}
		}
	}
}

// readFile decodes the first object that is known. Two reads that agree are of one version: files are updated in place.
func readFile(path string) (document Document, err error) {
	known := map[string]bool{"metadata.resource.k8s.io/v1beta1": true, "metadata.resource.k8s.io/v1alpha1": true}
	var before, now []byte
	for now, err = os.ReadFile(path); err == nil && !bytes.Equal(before, now); now, err = os.ReadFile(path) {
		before = now
	}
	for stream := json.NewDecoder(bytes.NewReader(before)); err == nil; document = (Document{}) {
		if err = stream.Decode(&document); err == nil && known[document.APIVersion] {
			return document, nil
		}
	}
	return document, fmt.Errorf("%s: %w", path, err)
}

func main() {
	// One file for each driver. CLAIM is the claim's name, or the pod's name for one that is made from a template.
	paths, _ := filepath.Glob(filepath.Join(os.Getenv("METADATA_ROOT"), // for tests
		"/var/run/kubernetes.io/dra-device-attributes/resourceclaim*", os.Args[1], os.Args[2], "*-metadata.json"))
	if len(paths) == 0 {
		log.Fatalf("no metadata of %s/%s", os.Args[1], os.Args[2])
	}
	for _, path := range paths {
		document, err := readFile(path)
		if err != nil {
			log.Fatal(err)
		}
		for _, device := range document.Requests[0].Devices {
			pci, network := device.Attributes["resource.kubernetes.io/pciBusID"].String, device.NetworkData
			fmt.Println(pci, network.InterfaceName, network.HardwareAddress, network.IPs)
		}
	}
}
