package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
)

// The parts of a kubelet that drivers see, without the one that runs pods.
type kubelet struct {
	Kubeconfig string
	Registry   string
	StateDir   string
	Pod        *corev1.Pod
}

// run prepares and unprepares the claims of the pod. It returns the CDI devices of its first container.
func (k *kubelet) run(ctx context.Context) ([]container.CDIDevice, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	settings, err := clientcmd.BuildConfigFromFlags("", k.Kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(settings)
	if err != nil {
		return nil, err
	}
	manager, err := dra.NewManager(klog.Background(), client, k.StateDir)
	if err != nil {
		return nil, err
	}
	pods := func() []*corev1.Pod { return []*corev1.Pod{k.Pod} }
	node := func(ctx context.Context) (*corev1.Node, error) {
		return client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	}
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	if err := manager.Start(ctx, pods, node, ready); err != nil {
		return nil, err
	}
	defer manager.Stop()
	plugins := pluginmanager.NewPluginManager(k.Registry, &record.FakeRecorder{})
	plugins.AddHandler(registration.DRAPlugin, manager.GetWatcherHandler())
	go plugins.Run(ctx, ready, ctx.Done())
	// As a kubelet does it for each pod: until the plugin is registered, this fails.
	for attempt := 0; ; attempt++ {
		if err = manager.PrepareResources(ctx, k.Pod); err == nil || attempt == 100 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return nil, err
	}
	info, err := manager.GetResources(k.Pod, &k.Pod.Spec.Containers[0])
	if err != nil {
		return nil, err
	}
	return info.CDIDevices, manager.UnprepareResources(ctx, k.Pod)
}
