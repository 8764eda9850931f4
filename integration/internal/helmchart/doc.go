// Package helmchart renders the chart of deploy/helm with Helm's own packages, as
// `helm template` does.
package helmchart
