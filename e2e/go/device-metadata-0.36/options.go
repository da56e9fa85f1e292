package main

import (
	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

func metadataOptions() []kubeletplugin.Option {
	return []kubeletplugin.Option{
		kubeletplugin.EnableDeviceMetadata(true),
		kubeletplugin.MetadataVersions(v1alpha1.SchemeGroupVersion),
	}
}
