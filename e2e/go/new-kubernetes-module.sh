#!/usr/bin/env bash
# Writes the Go module that pins a Kubernetes release, or updates an existing one to another patch release:
#
#   bash e2e/go/new-kubernetes-module.sh 1.36.3        writes e2e/go/kubernetes-1.36
#   bash e2e/go/new-kubernetes-module.sh next          updates e2e/go/kubernetes-next to the newest version, pre-releases included
#
# `go install k8s.io/kubernetes/cmd/...@version` refuses modules whose go.mod replaces others, and the one of Kubernetes
# replaces its staging modules by folders. This module replaces them by their published releases instead.
#
# tools.go is the same for all releases but copied to each module: `go mod tidy` keeps what the module's own files import.
# The newest release, which e2e/kind runs, also has a kubeadm.go, which is moved by hand.
set -euo pipefail
version=${1:?usage: new-kubernetes-module.sh MAJOR.MINOR.PATCH | next}
minor=${version%.*}
module=kubernetes
# A version may need a newer Go than the installed one.
export GOTOOLCHAIN=auto
if [ "$minor" = next ]; then
  module=kubernetes-next
  version=$(cd / && go list -m -versions -f '{{range .Versions}}{{println .}}{{end}}' k8s.io/kubernetes | grep . | tail -n 1)
  version=${version#v}
fi
patch=${version#1.}
cd "$(dirname "${BASH_SOURCE[0]}")"
upstream=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
mkdir -p "kubernetes-$minor"
cd "kubernetes-$minor"
{
  printf 'module netdra.dev/e2e/%s\n\n' "$module"
  grep '^go ' "$upstream"
  printf '\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$version"
  sed -n 's,^\t*\(k8s.io/[a-z0-9-]*\) => ./staging/src/k8s.io/.*,\1,p' "$upstream" |
    while read -r module; do printf '\t%s => %s v0.%s\n' "$module" "$module" "$patch"; done
  printf ')\n'
} >go.mod
rm -f go.sum
if [ "$minor" = next ]; then
  # Its program imports packages. -e: a proxy may lack modules of a pre-release that only tests of Kubernetes need.
  go mod tidy -e
  exit
fi
cat >tools.go <<'GO'
//go:build tools

// Package tools names the programs to build, so that `go mod tidy` keeps what they need.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
	_ "k8s.io/kubernetes/test/e2e/dra/test-driver"
)
GO
go mod tidy
