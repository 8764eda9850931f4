// Package controlplane runs one or several kube-apiservers on a store.
//
//	creds := controlplane.NewCredentials(t)
//	api := controlplane.StartAPIServer(t, creds, controlplane.APIConfig{Store: store.Endpoints()})
//	client := api.Client()                      // an administrator's
//
// Started programs end with the test, or with the test's process if that is
// killed. A test that fails shows the ends of all logs and keeps the whole logs in its
// artifact directory (go test -artifacts).
//
// Start reading at apiserver.go.
package controlplane
