// Package deploy tests the folder deploy/: that its alerts and its dashboard ask
// for metrics that a server exports, and that its unit and its manifests set what
// sqlbrain knows.
//
// It reads them with Prometheus' and Kubernetes' own code.
package deploy
