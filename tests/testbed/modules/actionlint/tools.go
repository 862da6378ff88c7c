//go:build tools

// Package tools pins the checker of GitHub's workflows.
package tools

import _ "github.com/rhysd/actionlint/cmd/actionlint"
