// Package kwok has no code: its module says which KWOK the tests run, with the
// dependencies that KWOK is released with.
package kwok
