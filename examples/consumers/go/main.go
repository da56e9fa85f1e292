// Command metadata prints the devices of a request, and prints them again after each change: metadata CLAIM REQUEST.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"time"
)

// Document describes the devices of a request. Attributes are unions; this program reads strings.
type Document struct {
	APIVersion string
	Metadata   struct{ Generation int64 }
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

// decode returns the first object of a known version: a file is a stream of objects, one for each version.
func decode(text []byte) (document Document, err error) {
	known := map[string]bool{"metadata.resource.k8s.io/v1beta1": true, "metadata.resource.k8s.io/v1alpha1": true}
	for stream := json.NewDecoder(bytes.NewReader(text)); err == nil && !known[document.APIVersion]; {
		document = Document{}
		err = stream.Decode(&document)
	}
	return document, err
}

// read returns the content of the files, one for each driver. A blank file has no content yet: then there is none.
func read(pattern string) (texts [][]byte) {
	paths, _ := filepath.Glob(pattern)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return nil
		}
		texts = append(texts, text)
	}
	return texts
}

func main() {
	// CLAIM is the claim's name, or the pod's name for a template claim.
	pattern := filepath.Join(os.Getenv("METADATA_ROOT"), "/var/run/kubernetes.io/dra-device-attributes/resourceclaim*",
		os.Args[1], os.Args[2], "*-metadata.json")
	var before, shown [][]byte
	for ; ; time.Sleep(200 * time.Millisecond) {
		now := read(pattern)
		// Files change in place: two reads that agree are of one version.
		if now != nil && reflect.DeepEqual(now, before) && !reflect.DeepEqual(now, shown) {
			for _, text := range now {
				show(text)
			}
			shown = now
		}
		before = now
	}
}

func show(text []byte) {
	document, err := decode(text)
	if err != nil {
		log.Fatalf("no known version in a metadata file: %v", err)
	}
	for _, request := range document.Requests {
		for _, device := range request.Devices {
			pci, network := device.Attributes["resource.kubernetes.io/pciBusID"].String, device.NetworkData
			fmt.Print(document.Metadata.Generation)
			for _, fact := range append([]string{pci, network.InterfaceName, network.HardwareAddress}, network.IPs...) {
				if fact == "" {
					fact = "-"
				}
				fmt.Print(" ", fact)
			}
			fmt.Println()
		}
	}
}
