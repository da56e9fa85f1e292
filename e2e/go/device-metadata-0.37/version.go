package main

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

func metadataOptions() []kubeletplugin.Option {
	versions := []schema.GroupVersion{v1beta1.SchemeGroupVersion, v1alpha1.SchemeGroupVersion}
	return []kubeletplugin.Option{kubeletplugin.EnableDeviceMetadata(true, versions), kubeletplugin.HealthService(false)}
}

// decode validates as well: this is the first version that can.
func decode(decoder *json.Decoder, into *v1alpha1.DeviceMetadata) (invalid string, err error) {
	var problem error
	validate := devicemetadata.DecodeMetadataWithValidationResult(&problem)
	if err := devicemetadata.DecodeMetadataFromStream(decoder, into, validate); err != nil {
		return "", err
	}
	if problem != nil {
		invalid = problem.Error()
	}
	return invalid, nil
}
