package main

import (
	"encoding/json"

	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

func metadataOptions() []kubeletplugin.Option {
	return []kubeletplugin.Option{
		kubeletplugin.EnableDeviceMetadata(true),
		kubeletplugin.MetadataVersions(v1alpha1.SchemeGroupVersion),
	}
}

func decode(decoder *json.Decoder, into *v1alpha1.DeviceMetadata) (invalid string, err error) {
	return "", devicemetadata.DecodeMetadataFromStream(decoder, into)
}
