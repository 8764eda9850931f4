// Package faultdriver breaks a database/sql driver on purpose. It wraps a
// driver.Connector. For each statement, a Plan decides whether the statement fails before
// the engine receives it, or after the engine executed it, is late, or is never answered,
// and whether the connection breaks.
//
//	faults := faultdriver.New()
//	store, err := engines.Open(ctx, url, sqlstore.Options{WrapConnector: faults.Wrap})
//	faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
//		if s.Kind == faultdriver.Commit {
//			return faultdriver.Fault{After: faultdriver.ErrLost, Cut: true}
//		}
//		return faultdriver.Fault{}
//	})
//
// It keeps the contract of database/sql drivers: only a broken connection returns
// driver.ErrBadConn, and then nothing was sent. A Plan must not return driver.ErrBadConn
// for a statement that the engine executed.
//
// Start reading at fault.go, then injector.go.
package faultdriver
