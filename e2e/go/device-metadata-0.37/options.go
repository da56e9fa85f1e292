package main

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

func metadataOptions() []kubeletplugin.Option {
	versions := []schema.GroupVersion{v1beta1.SchemeGroupVersion, v1alpha1.SchemeGroupVersion}
	return []kubeletplugin.Option{kubeletplugin.EnableDeviceMetadata(true, versions), kubeletplugin.HealthService(false)}
}
