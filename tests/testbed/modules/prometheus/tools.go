//go:build tools

// Package tools pins the Prometheus that the tests evaluate alerts and the dashboard with.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
