// Package config holds the settings of the sqlbrain command.
//
// Each setting is a flag, an environment variable (SQLBRAIN_ and the flag's name
// in capitals, dashes as underscores) and a key of the YAML file that
// --config-file names. A flag beats the environment, which beats the file, which
// beats the default. Settings that etcd has are named and counted as in etcd.
//
// Guarantees:
//
//   - A flag or a key of the file that is not a setting is refused, with the nearest name.
//     If etcd has it, the error says why sqlbrain does not (etcd.go).
//   - So is a variable of the environment, if its name is near a setting's (environment.go).
//   - A value that is not valid is refused with one line that says where it
//     comes from, before anything is opened.
//   - No error and no description of the settings holds a password.
//
// Start reading at flags.go, which declares each setting once: the field that it fills, its name,
// its bounds and its help. config.go has the fields, load.go and environment.go collect values, check.go has the
// rules that concern several settings, datastore.go makes the database's URL.
package config
