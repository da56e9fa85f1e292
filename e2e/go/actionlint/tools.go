//go:build tools

// Package tools names the programs to build, so that `go mod tidy` keeps what they need.
package tools

import (
	_ "github.com/rhysd/actionlint/cmd/actionlint"
)
