// Package faultdriver breaks a database/sql driver on purpose: it wraps a
// driver.Connector, and a Plan decides for each statement whether it fails
// before the engine saw it, after the engine carried it out, late, or never
// answers, and whether the connection goes with it.
//
//	faults := faultdriver.New()
//	store, err := sqlstore.Open(ctx, url, sqlstore.Options{WrapConnector: faults.Wrap})
//	faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
//		if s.Kind == faultdriver.Commit {
//			return faultdriver.Fault{After: faultdriver.ErrLost, Cut: true}
//		}
//		return faultdriver.Fault{}
//	})
//
// It keeps the contract of database/sql drivers: driver.ErrBadConn comes from a
// connection that is gone only, and then for sure nothing was sent. A Plan that
// wants driver.ErrBadConn for something the engine did would break what callers
// build on.
//
// Start reading at injector.go.
package faultdriver
