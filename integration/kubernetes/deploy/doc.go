// Package deploy tests the folder deploy/: that its alerts and its dashboard ask
// for metrics that a server exports, and that its unit, its manifests and its chart
// set what sqlbrain knows.
//
// It reads them with Prometheus', Kubernetes' and Helm's own code.
package deploy
