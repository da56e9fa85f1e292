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
	Metadata struct{ Generation int64 }
	Requests []struct {
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
// Objects of other versions may have fields of other types, so only their version is decoded.
func decode(text []byte) (document Document, err error) {
	known := map[string]bool{"metadata.resource.k8s.io/v1beta1": true, "metadata.resource.k8s.io/v1alpha1": true}
	for stream := json.NewDecoder(bytes.NewReader(text)); ; {
		var object json.RawMessage
		var header struct{ APIVersion string }
		if err = stream.Decode(&object); err != nil {
			return document, err
		}
		if err = json.Unmarshal(object, &header); err != nil {
			return document, err
		}
		if known[header.APIVersion] {
			return document, json.Unmarshal(object, &document)
		}
	}
}

// read returns the content of the files, one for each driver. A blank file has no content yet: then there is none.
func read(patterns []string) (texts [][]byte) {
	var paths []string
	for _, pattern := range patterns {
		if paths, _ = filepath.Glob(pattern); len(paths) > 0 {
			break
		}
	}
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
	// CLAIM is the claim's name, or the pod's name for a template claim; the claim's name goes first.
	var patterns []string
	for _, kind := range []string{"resourceclaims", "resourceclaimtemplates"} {
		patterns = append(patterns, filepath.Join(os.Getenv("METADATA_ROOT"),
			"/var/run/kubernetes.io/dra-device-attributes", kind, os.Args[1], os.Args[2], "*-metadata.json"))
	}
	var before, shown [][]byte
	for ; ; time.Sleep(200 * time.Millisecond) {
		now := read(patterns)
		// Files change in place: two reads that agree are of one version.
		if reflect.DeepEqual(now, before) && !reflect.DeepEqual(now, shown) {
			if now == nil {
				fmt.Println("no content")
			}
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
