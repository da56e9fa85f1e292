//go:build tools

package tools

// Programs that only clusters of kubeadm need: e2e/kind/engine.
import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kubeadm"
)
