// Package enginetest gives tests a real MySQL or MariaDB.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		url := enginetest.Database(t) // mysql://user:password@127.0.0.1:port/database
//	}
//
//	func TestClaim(t *testing.T) {
//		for _, p := range enginetest.Products() {
//			t.Run(string(p), func(t *testing.T) { … p.Database(t) … })
//		}
//	}
//
// A database is on the server that an environment variable names for its product
// (SQLBRAIN_TEST_MARIADB_URL, SQLBRAIN_TEST_MYSQL_URL), or else on one that is
// started from a binary of this machine, once per test process.
// StartServer starts one that belongs to a single test, which may stop, kill
// and pause it.
//
// Without an engine a test is skipped, and says how to get one; with
// SQLBRAIN_REQUIRE_ENGINES=1 it fails instead.
//
// What the package upholds:
//
//   - Every call of Database and NewDatabase answers an empty database of its own,
//     dropped when the test ends.
//   - No server outlives the test process, however that ends: on Linux the
//     kernel kills it with the thread that started it. Directories left by a
//     killed process are removed by the next one.
//   - The servers it starts are as durable as production ones: a commit is on
//     disk before it is acknowledged.
//
// Start reading at product.go, then database.go, server.go and process.go.
package enginetest
