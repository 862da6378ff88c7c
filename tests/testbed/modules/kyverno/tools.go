//go:build tools

// Package tools pins the Kyverno controllers that the testbed runs.
package tools

import (
	_ "github.com/kyverno/kyverno/cmd/background-controller"
	_ "github.com/kyverno/kyverno/cmd/kyverno"
)
