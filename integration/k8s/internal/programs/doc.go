// Package programs builds Kubernetes' programs and keeps them between runs.
package programs
