// Package cloudtoken gets the short-lived passwords of managed databases: IAM tokens of Amazon
// RDS and Aurora, of Google Cloud SQL and of Azure Database for MySQL. It asks what the provider
// offers to a workload: environment variables, mounted tokens, the metadata service. It reads no
// files of command line tools.
//
// It uses HTTP and the standard library. The providers' SDKs would add 57 (Amazon) and more
// packages to the binary, for what is one signature and a few requests here.
//
// Start reading at source.go; there is one file for each provider.
package cloudtoken
