// Package enginetest gives tests a real MySQL or MariaDB.
//
//	func TestMain(m *testing.M) { eventually.NoLeaks(enginetest.Main(m)) }
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
// Product.Can says what a test may use that not every product has.
//
// An environment variable may name the server of a product (SQLBRAIN_TEST_MARIADB_URL,
// SQLBRAIN_TEST_MYSQL_URL, SQLBRAIN_TEST_TIDB_URL). Otherwise each test process starts one server per product from
// a binary of this machine. StartServer starts a server for a single test, which may stop,
// kill and pause it.
//
// Without an engine a test is skipped and reports how to get one. With
// SQLBRAIN_REQUIRE_ENGINES=1 it fails instead.
//
// Invariants, tested here:
//
//   - Every call of Database and NewDatabase returns a new, empty database, which is
//     dropped when the test ends.
//   - No server outlives the test process, even if that is killed: on Linux the kernel
//     kills the server with the thread that started it. The next test process removes
//     the directories that a killed process leaves.
//   - The servers are as durable as production servers: a commit is on disk before it is
//     acknowledged.
//
// Start reading at database.go, then server.go, instance.go and product.go.
package enginetest
